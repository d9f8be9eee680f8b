"""Where frameworks may be imported, and when."""

from __future__ import annotations

import ast

from duet.backend.contract import inference, training
from duet.backend.select import FRAMEWORKS
from duet.utils.project import PROJECT
from tests.structure.source_files import PYTHON_FILES, imports_of, name_of, parse

PACKAGES = {framework.package for framework in FRAMEWORKS.values()}
# Where each package may be imported. What else runs ONNX files asks `utils/optional.py` for it, but
# for tests, which judge files by it, and the examples, which use nothing of this project.
FOLDERS: dict[str, tuple[str, ...]] = {package: (f"backend/{package}/",) for package in PACKAGES}
FOLDERS["torch"] += ("tests/emulated/",)  # a device of PyTorch
FOLDERS["onnx"] = ("backend/onnx/", "tests/")
FOLDERS["onnxruntime"] = ("backend/onnx/", "docs/examples/", "tests/")
# The tensors of other backends come with their framework. These remember how they are computed, and
# a graph is made of them.
OWN_FILES = {"onnx": {"recording.py", "indexing.py", "model_proto.py"}}


def test_a_framework_is_imported_in_its_own_folder_only() -> None:
    found = {
        (name_of(path), package)
        for path in PYTHON_FILES
        for name in imports_of(parse(path))
        if (package := name.partition(".")[0]) in FOLDERS
    }
    strangers = {
        (path, package) for path, package in found if not path.startswith(FOLDERS[package])
    }
    assert strangers == set()
    assert {package for _, package in found} == set(FOLDERS)


def test_no_framework_module_goes_by_another_name() -> None:
    for path in PYTHON_FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                aliased = {alias.name for alias in node.names if alias.asname}
                assert not aliased & PACKAGES, path


def test_backends_consist_of_the_files_of_their_contract() -> None:
    for name, framework in FRAMEWORKS.items():
        modules = (training if framework.trains else inference).MODULES
        wanted = {"__init__.py", *(f"{module}.py" for module in modules)}
        found = {path.name for path in (PROJECT / "backend" / name).rglob("*.py")}
        assert found == wanted | OWN_FILES.get(name, set())
