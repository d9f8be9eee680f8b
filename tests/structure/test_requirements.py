"""The lock files pin everything, and are what this environment holds."""

import ast
import importlib.metadata
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement

import duet
from duet.utils.processes.start import PACKAGES
from duet.utils.project import PROJECT
from duet.utils.setup.environments import CUDA, ENVIRONMENTS, read_lock

# Run on the user's own Python before anything is installed.
SETUP_PACKAGES = [
    "__init__",
    *(f"{name}.__init__" for name in ("processes", "setup", "system")),
]
SETUP_FILES = [
    "errors",
    "project",
    "processes.start",
    "system.children",
    "system.files",
    "setup.environments",
]
REQUIREMENTS = PROJECT / "requirements"
LOCKS = [path.stem for path in REQUIREMENTS.iterdir()]
LEVELS = ("", "-extras", "-dev")
# What decides the pixels of a batch and what is read from a file.
EQUAL = ("opencv-python-headless", "pillow", "pyyaml", "safetensors")
PIN = re.compile(r"([\w.-]+)===?([\w.+]+)(?: ; (.*))? \\")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}( \\)?")
DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL": "pillow", "yaml": "pyyaml"}
UNPINNED = {"pip"}  # it comes with Python


def canonical(name: str) -> str:
    """The form in which package names are compared: "PyYAML" and "pyyaml" are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(locks: Iterable[str], python: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Names and versions for a Python, by default this one, without the "+cpu" of "2.13.0+cpu"."""
    lines = [line for lock in locks for line in read_lock(REQUIREMENTS / f"{lock}.txt")]
    found = [match.groups() for match in map(PIN.fullmatch, lines) if match]
    return [
        (canonical(name), version.partition("+")[0])
        for name, version, marker in found
        if marker is None or Marker(marker).evaluate(python)
    ]


def pins(*locks: str) -> dict[str, str]:
    """Version by package name where this Python runs."""
    return dict(pinned(locks))


def all_pins(backend: str) -> dict[str, str]:
    """What an environment of developers has, with the CUDA build."""
    return pins(*(backend + level for level in LEVELS), *["torch-cuda"] * (backend == "torch"))


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
def test_every_requirement_is_pinned_with_hashes(lock):
    state = None
    for line in read_lock(REQUIREMENTS / f"{lock}.txt"):
        kind = "pin" if PIN.fullmatch(line) else "hash" if HASH.fullmatch(line) else line
        assert kind in ("pin", "hash")
        assert not (kind == "pin" and state == "open"), f"no hash above {line}"
        assert not (kind == "hash" and state is None), f"a hash without a pin: {line}"
        state = "open" if line.endswith("\\") else None
    assert state is None


@pytest.mark.parametrize("backend", ["torch", "oneflow"])
def test_package_is_in_one_lock_of_a_backend(backend):
    names = [name for level in LEVELS for name in pins(backend + level)]
    assert len(names) == len(set(names)) > 60


@pytest.mark.parametrize("backend", ["torch", "oneflow"])
def test_user_locks_hold_command_imports_but_no_dev_tools(backend):
    users = pins(backend)
    assert users.keys() >= {DISTRIBUTIONS.get(name, name) for name in (*PACKAGES, "starlette")}
    assert not users.keys() & {"mypy", "openvino", "pytest", "ruff", "triton"}


@pytest.mark.parametrize("python", ENVIRONMENTS["torch"])
def test_pytorch_lock_pins_one_version_per_python(python):
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    names = [name for name, _ in pinned(("torch", "torch-cuda"), version)]
    assert len(names) == len(set(names))
    assert set(names) >= {DISTRIBUTIONS.get(name, name) for name in (*PACKAGES, "torch", "onnx")}


def test_pytorch_users_can_export_to_onnx():
    assert pins("torch").keys() >= {"onnx", "onnxruntime"}


def test_package_and_pyproject_have_one_version():
    assert f'\nversion = "{duet.__version__}"\n' in (PROJECT / "pyproject.toml").read_text()


def test_workflow_covers_systems_pythons_and_oldest_deps():
    text = (PROJECT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    matrix = yaml.safe_load(text)["jobs"]["quick"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert "lowest-direct" in {row["versions"] for row in matrix["include"]}


def test_both_torch_builds_have_one_version():
    assert pins("torch-cpu")["torch"] == pins("torch-cuda")["torch"]
    major, minor, *_ = pins("torch-cuda")["cuda-toolkit"].split(".")
    assert (int(major), int(minor)) == CUDA


def test_locks_name_no_host():
    for path in REQUIREMENTS.iterdir():
        assert "://" not in path.read_text()


def test_both_backends_read_files_with_the_same_packages():
    torch, oneflow = pins("torch"), pins("oneflow")
    assert {name: torch[name] for name in EQUAL} == {name: oneflow[name] for name in EQUAL}


def test_environment_matches_the_locks():
    present = installed()
    (backend,) = {"torch", "oneflow"} & present.keys()
    locked = all_pins(backend)
    assert {
        name: (version, "pinned", locked.get(name))
        for name, version in present.items()
        if name not in UNPINNED and locked.get(name) != version
    } == {}


def test_installed_packages_lack_only_a_second_opencv():
    """The locks are installed without a look at what packages ask for."""
    present = installed()
    asked = [
        Requirement(line) for name in present for line in importlib.metadata.requires(name) or ()
    ]
    needed = {
        canonical(requirement.name)
        for requirement in asked
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    of_cuda = pins("torch-cuda").keys() if "torch" in present else set()
    assert needed - present.keys() - of_cuda == {"opencv-python"}


@pytest.mark.parametrize("name", [*SETUP_PACKAGES, *SETUP_FILES])
def test_setup_files_run_on_python_3_8_without_packages(name):
    path = PROJECT / "utils" / f"{name.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = imported_modules(tree)
    ours = {f"duet.utils.{other}" for other in SETUP_FILES}
    assert imported <= (set() if name in SETUP_PACKAGES else sys.stdlib_module_names | ours)
    # Python 3.8 cannot evaluate annotations such as `str | None`.
    annotates = any(isinstance(node, ast.FunctionDef | ast.AnnAssign) for node in ast.walk(tree))
    assert not annotates or "__future__" in imported
