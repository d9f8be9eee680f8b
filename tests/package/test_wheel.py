"""The wheel in an environment of its own, and in a notebook."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from duet.backend import use
from duet.utils.project import PROJECT
from tests.foreign_files import TorchFile, small_arrays, small_model
from tests.small import write_small_dataset, write_tiny_model

FOLDERS = ("backend", "data", "duet", "models", "utils")
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py",
         "train.py", "val.py", "detect.py", "export.py", "compare.py")  # fmt: skip
MOST_BYTES = 3_000_000
PROGRAM = """
import sys
import models, utils, backend
import duet

assert {x.OWNER for x in (models, utils, backend)} == {"the user"}
flags = dict(data="shapes/shapes.yaml", img=64, backend=sys.argv[1])
small = dict(epochs=1, batch=4, workers=2, noplots=True)
run = duet.train(**flags, **small, cfg="tiny.yaml", weights="")
assert duet.val(run.weights, **flags).metrics.keys() == run.metrics.keys()
(exported,) = duet.export(run.weights, "onnx", img=64).files
assert exported.exists()
assert duet.load("yolov5.pt").class_names == ("cat", "dog")
import models.parts, utils

assert models.parts.OWNER == utils.OWNER == "the user"
assert not any(name.partition(".")[0] in ("models", "utils", "backend")
               and "user" not in vars(sys.modules[name]).get("OWNER", "") for name in sys.modules)
print("done", duet.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the project: building leaves folders beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in FOLDERS:
        unused = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / name, folder / "copy" / name, symlinks=True, ignore=unused)
    for name in FILES:
        shutil.copy(PROJECT / name, folder / "copy" / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, folder / "copy"], check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def make_environment(folder: Path, wheel: Path, packages: Path) -> Path:
    """Make an environment that holds the wheel, and sees packages; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"]
    subprocess.run([*install, "--no-index", wheel], check=True, capture_output=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "further.pth").write_text(f"{packages}\n")
    return python


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A folder of a user, with modules that have the names of our folders, and an environment."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("models/__init__.py", "models/parts.py", "utils.py", "backend.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('OWNER = "the user"\n')
    make_environment(folder / "environment", wheel, Path(sysconfig.get_path("purelib")))
    write_tiny_model(folder)
    write_small_dataset(folder)
    file = TorchFile()
    file.write_zip(folder / "yolov5.pt", {"model": small_model(file, small_arrays())})
    return folder


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    program = folder / "environment" / "bin" / str(words[0])
    return subprocess.run(
        [program, *map(str, words[1:])], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_wheel_is_small_and_holds_one_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.stat().st_size < MOST_BYTES
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"duet", "duet_detect"}
    kept = {"data/coco.yaml", "data/hyps/hyp.scratch-low.yaml", "models/yolov5n.yaml",
            "models/hub/yolov5n6.yaml", "utils/files/page.css", "utils/serve/page.html",
            "utils/serve/openapi.json", "commands/train.py"}  # fmt: skip
    assert {f"duet/{name}" for name in kept} <= set(names)


def test_installed_package_works_beside_user_modules(user: Path) -> None:
    (user / "program.py").write_text(PROGRAM)
    done = run(user, "python", "program.py", use())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"done {user / 'environment'}")


def test_duet_command_is_installed(user: Path) -> None:
    shown = run(user, "duet", "--help").stdout
    assert len(shown.splitlines()) <= 24 and "train" in shown
    assert run(user, "python", "-m", "duet", "--help").stdout == shown
    done = run(user, "duet", "weights", "show", "yolov5.pt")
    assert "tensors: 9" in done.stdout, done.stderr
    images = ("--source", "shapes/images/val", "--img", 64, "--backend", use())
    done = run(user, "duet", "detect", "--weights", "yolov5.pt", *images)
    assert done.returncode == 0 and (user / "runs/detect").is_dir(), done.stderr
    done = run(user, "duet", "train", "--epcohs", 3)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown flag --epcohs for duet train; did you mean --epochs?" in done.stderr


def test_missing_framework_message_names_the_extra(tmp_path: Path, wheel: Path) -> None:
    """The other packages are there, by links."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("torch", "oneflow", "onnx")):
            (packages / path.name).symlink_to(path)
    make_environment(tmp_path / "environment", wheel, packages)
    done = run(tmp_path, "duet", "train", "--backend", "torch")
    assert done.returncode == 2 and "pip install 'duet-detect[torch]'" in done.stderr


@pytest.mark.skipif(use() != "torch", reason="torch.hub is PyTorch's")
def test_torch_hub_leaves_user_modules_alone(user: Path) -> None:
    """The hub loads from the checkout, whatever is installed."""
    program = f"""
import utils, torch
model = torch.hub.load({str(PROJECT)!r}, "custom", path="yolov5.pt", source="local")
fresh = torch.hub.load({str(PROJECT)!r}, "yolov5n", source="local", pretrained=False)
import models, backend
assert {{x.OWNER for x in (models, utils, backend)}} == {{"the user"}}
print(model.names, len(fresh.names))
"""
    (user / "hub.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "hub.py"], cwd=user, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "{0: 'cat', 1: 'dog'} 80"


CELLS = (
    "import duet\nimport signal\nbefore = signal.getsignal(signal.SIGINT)",
    f"flags = dict(data='shapes/shapes.yaml', img=64, workers=2, backend={use()!r})",
    "small = dict(**flags, batch=4, noplots=True)",
    "run = duet.train(**small, cfg='tiny.yaml', weights='', epochs=2)",
    "found = duet.val(run.weights, **flags)\nfound.metrics.keys() == run.metrics.keys()",
    "duet.train(**small, weights=run.weights, epochs=1).folder.name",
    "try:\n    duet.train(**flags, epochs=0)\nexcept duet.UserError as error:\n    print(error)",
    "signal.getsignal(signal.SIGINT) is before",
)


def test_notebook_trains_twice_and_shows_a_mistake(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT), prepend=os.pathsep)
    write_small_dataset(tmp_path)
    write_tiny_model(tmp_path)
    path = tmp_path / "book.ipynb"
    cells = [code_cell(number, source) for number, source in enumerate(CELLS)]
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    execute = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", path]
    done = subprocess.run(execute, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    book = json.loads(path.read_text())
    shown = ["".join(map(text_of, cell["outputs"])) for cell in book["cells"]]
    assert "weights in runs/train/exp/weights" in shown[3] and "mAP50" in shown[3]
    assert shown[4].endswith("True")
    assert shown[5].endswith("'exp2'")
    assert shown[6] == "--epochs 0; accepted: a whole number of at least 1\n"
    assert shown[7] == "True"


def code_cell(number: int, source: str) -> dict[str, object]:
    return {"cell_type": "code", "id": f"cell{number}", "source": source, "metadata": {},
            "outputs": [], "execution_count": None}  # fmt: skip


def text_of(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"])
