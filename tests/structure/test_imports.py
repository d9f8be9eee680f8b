"""Imports between files and of frameworks; names that docstrings and pages refer to exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from duet.backend.contract import inference, training
from duet.backend.select import FRAMEWORKS
from duet.utils.project import PROJECT

# Each of docs/examples is a program of its own, without Duet; docs/blocks are those of readers.
PYTHON_FILES = [
    path
    for path in sorted(PROJECT.rglob("*.py"))  # without those behind the links of duet/
    if not path.is_symlink()
    and not any(part.startswith(".") for part in path.relative_to(PROJECT).parts)
    and path.relative_to(PROJECT).parts[:2] not in (("docs", "examples"), ("docs", "blocks"))
]


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """The path of a file from the project's folder, with "/"."""
    return path.relative_to(PROJECT).as_posix()


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The full names of what a tree imports: modules, and names in modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# From below to above: each imports from itself and from what stands before it.
LINKED = ("backend", "models", "utils")  # folders at the top, imported by links in duet/
LAYERS = ("backend", "utils", "models", "scripts", "benchmarks", "tests")
# Large packages that not every command needs.
OPTIONAL = {"cv2", "fontTools", "matplotlib", "torchvision"}

# Started by `python -m`, it chooses the framework and then imports the work, as scripts do.
COMMANDS_IN_MODELS = {
    "duet.models.export.graph_process",
    "duet.models.detect.__main__",
    "duet.models.training.doctor",
}

# Its functions choose the framework and then import the work, as scripts do. What they need before
# is imported there too: the file is read where no package need be installed.
LOAD = "duet"

# Its packages are optional: it imports what needs them once it has said which one is absent.
SERVER = "duet.utils.serve.__main__"


def module_of(path: Path) -> str:
    """The name by which a file of the project is imported."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("duet", *parts) if parts[0] in LINKED else parts)


FILES = {module_of(path): path for path in PYTHON_FILES}


def nearest_module(name: str) -> str:
    """The module of the project that holds a full name; "" for one of another package."""
    while name and name not in FILES:
        name = name.rpartition(".")[0]
    return name


@cache
def graph() -> Mapping[str, set[str]]:
    """By module, the modules of the project that it imports, wherever in the file."""
    return {
        module: {
            found
            for name in imports_of(parse(path))
            if (found := nearest_module(name)) not in ("", module)
        }
        for module, path in FILES.items()
    }


def layer_of(module: str) -> int:
    """The place of a module's room among LAYERS; what lies in no room is a script, as is what
    is started by `python -m`.
    """
    room = module.removeprefix("duet.").partition(".")[0]
    if room not in LAYERS or (room in ("utils", "models") and is_command(module)):
        room = "scripts"
    return LAYERS.index(room)


def is_command(module: str) -> bool:
    """Whether it is started by `python -m`, and stands above its folder."""
    return FILES[module].name == "__main__.py"


def cycle_in(arrows: Mapping[str, set[str]]) -> list[str]:
    """The nodes of a cycle, the first again at the end; [] if there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_rooms_import_downward() -> None:
    found = {
        (module, other)
        for module, others in graph().items()
        for other in others
        if layer_of(other) > layer_of(module)
    }
    assert found == set()


def test_no_module_imports_itself_indirectly() -> None:
    assert cycle_in(graph()) == []


def test_only_front_door_and_tests_import_commands() -> None:
    importers = {
        module for module, others in graph().items() for other in others if is_command(other)
    }
    assert {module for module in importers if not module.startswith("tests.")} <= {LOAD}


def test_required_modules_are_imported_at_the_top() -> None:
    """Apart from what is optional, and from models where the framework is chosen first."""
    found = set()
    for module, path in FILES.items():
        if not module.startswith("tests."):
            found |= {
                (str(path.relative_to(PROJECT)), nearest_module(name) or name)
                for name in function_level_imports(path)
                if not may_be_imported_late(name, module)
            }
    assert found == set()


def may_be_imported_late(name: str, module: str) -> bool:
    """Whether a module may import a name inside a function."""
    package = name.removeprefix("duet.").partition(".")[0]
    if module == LOAD:
        return True
    if module == SERVER and name.startswith("duet.utils.serve."):
        return True
    if package == "models":
        return layer_of(module) >= LAYERS.index("scripts") or module in COMMANDS_IN_MODELS
    return package in OPTIONAL


def function_level_imports(path: Path) -> Iterator[str]:
    """Full names that are imported inside functions."""
    for function in ast.walk(parse(path)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports_of(function)


PACKAGES = {framework.package for framework in FRAMEWORKS.values()}
# Where each package may be imported. What else runs ONNX files asks `utils/optional.py` for it, but
# for tests, which judge files by it, and the examples, which use nothing of this project.
FOLDERS: dict[str, tuple[str, ...]] = {package: (f"backend/{package}/",) for package in PACKAGES}
FOLDERS["torch"] += ("tests/emulated/",)  # a device of PyTorch
FOLDERS["onnx"] = ("backend/onnx/", "tests/")
FOLDERS["onnxruntime"] = ("backend/onnx/", "docs/examples/", "tests/")
# The tensors of other backends come with their framework. These remember how they are computed, and
# a graph is made of them.
OWN_FILES = {
    "torch": {"finishing.py"},
    "onnx": {"recording.py", "model_proto.py"},
}


def test_framework_is_imported_only_in_its_own_folder() -> None:
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


def test_framework_modules_are_never_aliased() -> None:
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


PAGES = [*PROJECT.glob("README*.md"), *PROJECT.glob("docs/**/*.md"), PROJECT / "CONTRIBUTING.md"]
# A Python file, perhaps with a name in it. A folder in capitals stands for any.
REFERENCE = re.compile(r"(?<![\w./*<-])([\w./-]*\w\.py)\b(?:::(\w+))?")


def prose(path: Path) -> str:
    """Docstrings and comments of a Python file; all of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(parse(path)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


def resolve(reference: str, place: Path) -> Path | None:
    """The file that is meant: from the project's folder or docs, from here, or by its ending."""
    pattern = re.sub(r"\b[A-Z]+\b", "*", reference)
    for folder in (PROJECT, PROJECT / "docs", PROJECT / "docs/en", place.parent):
        if found := next(folder.glob(pattern), None):
            return found
    ending = [path for path in PYTHON_FILES if str(path).endswith(f"/{reference}")]
    return ending[0] if len(ending) == 1 else None


@cache
def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a file, and what it assigns to."""
    nodes = list(ast.walk(parse(path)))
    defined = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return defined | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def missing_in(path: Path) -> list[str]:
    """What a file points to that is not there, or that two files could be."""
    missing = []
    for reference, name in REFERENCE.findall(prose(path)):
        found = resolve(reference, path)
        if found is None or (name and name not in names_in(found)):
            missing.append(f"{reference}::{name}" if name else reference)
    return missing


def test_every_reference_has_a_target() -> None:
    missing = {str(path.relative_to(PROJECT)): missing_in(path) for path in PYTHON_FILES + PAGES}
    assert {path: found for path, found in missing.items() if found} == {}


def test_stale_reference_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    stale = "`train.py::no_such_name`, utils/no_such_file.py, `head.py`"  # the last: two have it
    page.write_text(f"`train.py::main`, `coco/metric.py`, backend/NAME/ops.py, {stale}")
    assert missing_in(page) == ["train.py::no_such_name", "utils/no_such_file.py", "head.py"]
