"""The lock files pin everything, and are what this environment holds."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import sysconfig

import pytest
from packaging.requirements import Requirement

from duet.utils.project import PROJECT
from duet.utils.setup.environments import CUDA, ENVIRONMENTS, read_lock

# Run on the user's own Python before anything is installed.
SETUP_PACKAGES = [
    "__init__",
    *(f"{name}.__init__" for name in ("processes", "setup")),
]
SETUP_FILES = [
    "errors",
    "project",
    "processes.interrupt",
    "setup.environments",
]
REQUIREMENTS = PROJECT / "requirements"
LOCKS = ("torch", "torch-cpu", "torch-cuda", "oneflow")
PIN = re.compile(r"([\w.-]+)===?([\w.+]+)( ; .*)? \\")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}( \\)?")
UNPINNED = {"pip"}  # it comes with Python


def canonical(name: str) -> str:
    """The form in which package names are compared: "PyYAML" and "pyyaml" are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(*locks: str) -> dict[str, str]:
    """Version by package name, without a marker and without the local part of "2.13.0+cpu"."""
    lines = [line for lock in locks for line in read_lock(REQUIREMENTS / f"{lock}.txt")]
    found = [match.groups() for match in map(PIN.fullmatch, lines) if match]
    return {canonical(name): version.partition("+")[0] for name, version, _ in found}


def sources(backend: str) -> dict[str, str]:
    """Version by package name in a .in file and those that it includes."""
    found = {}
    for line in read_lock(REQUIREMENTS / f"{backend}.in"):
        if line.startswith(("-r ", "-c ")):
            found |= sources(line[3:].removesuffix(".in"))
        else:
            name, _, version = line.partition(";")[0].partition("==")
            found[canonical(name.strip())] = version.strip()
    return found


def installed() -> dict[str, str]:
    """Version by package name, without the local part of "2.13.0+cpu"."""
    return {
        canonical(distribution.name): distribution.version.partition("+")[0]
        # Not sys.path: setuptools, once imported, adds what it brings along.
        for distribution in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    }


def imported_modules(tree: ast.Module) -> set[str]:
    """Full names of the project's modules, first names of all others."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or ".")
    return {name if name.startswith("duet.utils.") else name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_exactly_and_has_hashes(lock):
    pinned = None
    for line in read_lock(REQUIREMENTS / f"{lock}.txt"):
        kind = "pin" if PIN.fullmatch(line) else "hash" if HASH.fullmatch(line) else line
        assert kind in ("pin", "hash")
        assert not (kind == "pin" and pinned == "open"), f"no hash above {line}"
        assert not (kind == "hash" and pinned is None), f"a hash without a pin: {line}"
        pinned = "open" if line.endswith("\\") else None
    assert pinned is None


@pytest.mark.parametrize("backend", ENVIRONMENTS)
def test_the_locks_hold_what_their_sources_pin(backend):
    locks = ("torch", "torch-cuda") if backend == "torch" else (backend,)
    pinned = pins(*locks)
    assert {name: pinned.get(name) for name in sources(backend)} == sources(backend)
    # All others come with the CUDA build of torch, at versions that its metadata names.
    others = pinned.keys() - sources(backend)
    assert {name for name in others if not name.startswith(("nvidia-", "cuda-"))} == set()


def test_both_builds_of_torch_are_of_one_version():
    assert pins("torch-cpu") == {"torch": sources("torch")["torch"]}
    assert pins("torch-cuda")["torch"] == sources("torch")["torch"]
    major, minor, *_ = pins("torch-cuda")["cuda-toolkit"].split(".")
    assert (int(major), int(minor)) == CUDA


def test_locks_name_no_host():
    for path in REQUIREMENTS.iterdir():
        assert "://" not in path.read_text()


def test_the_backends_differ_in_no_version_but_that_of_numpy():
    torch, oneflow = pins("torch"), pins("oneflow")
    assert {name for name in torch.keys() & oneflow if torch[name] != oneflow[name]} == {"numpy"}


def test_this_environment_holds_what_the_lock_says():
    present = installed()
    (backend,) = ENVIRONMENTS.keys() & present
    build = "torch-cuda" if "cuda-toolkit" in present else "torch-cpu"
    pinned = pins(backend, *([build] if backend == "torch" else []))
    assert {
        name: (version, "pinned", pinned.get(name))
        for name, version in present.items()
        if name not in UNPINNED and pinned.get(name) != version
    } == {}


def test_optional_packages_bring_what_they_need_and_no_second_opencv():
    """`pip install --no-deps -r requirements/optional.in` completes an environment of the rest."""
    present, optional = installed(), optional_pins()
    assert {name: present[name] for name in optional} == optional
    asked = [
        Requirement(line) for name in optional for line in importlib.metadata.requires(name) or ()
    ]
    needed = {
        canonical(requirement.name)
        for requirement in asked
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert needed - present.keys() == {"opencv-python"}
    kept_by_the_core = {"numpy", "pillow", "pyyaml", "matplotlib", "tqdm", "python-dateutil",
        "tzdata", "opencv-python-headless", "packaging", "typing-extensions", "tomli"}  # fmt: skip
    assert needed - {"opencv-python"} <= optional.keys() | kept_by_the_core


def optional_pins() -> dict[str, str]:
    """Version by package name in optional.in, of those that this Python takes."""
    lines = map(Requirement, read_lock(REQUIREMENTS / "optional.in"))
    taken = {canonical(line.name) for line in lines if not line.marker or line.marker.evaluate()}
    return {name: version for name, version in sources("optional").items() if name in taken}


@pytest.mark.parametrize("name", [*SETUP_PACKAGES, *SETUP_FILES])
def test_setup_files_parse_on_python_3_8_and_import_the_standard_library_alone(name):
    path = PROJECT / "utils" / f"{name.replace('.', '/')}.py"
    imported = imported_modules(ast.parse(path.read_text(), feature_version=(3, 8)))
    ours = {f"duet.utils.{other}" for other in SETUP_FILES}
    assert imported <= (set() if name in SETUP_PACKAGES else sys.stdlib_module_names | ours)
