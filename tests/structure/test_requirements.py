"""The lock files pin everything, and are what this environment holds."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from utils.files.project import PROJECT
from utils.setup.environments import ENVIRONMENTS, read_lock

# Run on the user's own Python before anything is installed.
SETUP_PACKAGES = [
    "__init__",
    *(f"{name}.__init__" for name in ("files", "processes", "screen", "setup")),
]
SETUP_FILES = [
    "errors",
    "files.project",
    "processes.interrupt",
    "screen.words",
    "setup.environments",
    "setup.interpreters",
    "setup.pip_output",
    "setup.state_line",
    "setup.suites",
]
# pip comes with Python; the CUDA build of torch adds the rest, pinned by its own metadata.
UNPINNED = re.compile(r"pip|nvidia-.*|cuda-.*")


def canonical(name: str) -> str:
    """The form in which package names are compared: "PyYAML" and "pyyaml" are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(backend: str) -> dict[str, str]:
    """Version by package name; a marker is left out of it."""
    lines = read_lock(PROJECT / "requirements" / f"{backend}.txt")
    named = (line.partition(";")[0].partition("==") for line in lines)
    return {canonical(name.strip()): version.strip() for name, _, version in named}


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
    return {name if name.startswith("utils.") else name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("backend", ENVIRONMENTS)
def test_every_requirement_is_pinned_exactly(backend):
    exact = re.compile(r'[\w.-]+==[\w.]+(; python_version < "3\.11")?')
    lines = read_lock(PROJECT / "requirements" / f"{backend}.txt")
    assert [line for line in lines if not exact.fullmatch(line)] == []


@pytest.mark.parametrize("backend", ENVIRONMENTS)
def test_no_package_is_pinned_twice(backend):
    assert len(pins(backend)) == len(read_lock(PROJECT / "requirements" / f"{backend}.txt"))


def test_the_backends_differ_in_no_version_but_that_of_numpy():
    torch, oneflow = pins("torch"), pins("oneflow")
    assert {name for name in torch.keys() & oneflow if torch[name] != oneflow[name]} == {"numpy"}


def test_this_environment_holds_what_the_lock_says():
    present = installed()
    (backend,) = ENVIRONMENTS.keys() & present
    pinned = pins(backend)
    extra = {name for name in present if name not in pinned and UNPINNED.fullmatch(name)}
    assert {
        name: (version, "pinned", pinned.get(name))
        for name, version in present.items()
        if name not in extra and pinned.get(name) != version
    } == {}


@pytest.mark.parametrize("name", SETUP_FILES)
def test_setup_files_import_the_standard_library_and_each_other_only(name):
    tree = ast.parse(module_file(name).read_text())
    allowed = sys.stdlib_module_names | {f"utils.{other}" for other in SETUP_FILES}
    assert imported_modules(tree) - allowed == set()


@pytest.mark.parametrize(
    "name",
    [
        "__init__",
        "files.__init__",
        "processes.__init__",
        "screen.__init__",
        "setup.__init__",
        *SETUP_FILES,
    ],
)
def test_setup_files_parse_on_python_3_8(name):
    ast.parse(module_file(name).read_text(), feature_version=(3, 8))


@pytest.mark.parametrize(
    "name",
    ["__init__", "files.__init__", "processes.__init__", "screen.__init__", "setup.__init__"],
)
def test_packages_of_setup_files_import_nothing(name):
    assert imported_modules(ast.parse(module_file(name).read_text())) == set()


def module_file(name: str) -> Path:
    """The file of a module of utils."""
    return PROJECT / "utils" / f"{name.replace('.', '/')}.py"
