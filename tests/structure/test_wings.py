"""The core works without its wings: what hangs on it by a line of a table may be deleted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from duet import backend
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_tiny_model
from tests.structure.test_budgets import BUDGETS, room_of
from tests.structure.test_imports import FILES, graph, name_of

# By what a user would miss: the folders and files that are deleted.
WINGS = {
    "comparison": ("utils/comparison", "compare.py"),
    "further label formats": ("utils/data/formats",),
    "records": ("utils/data/records",),
    "check and audit": ("utils/data/check", "models/evaluation/audit", "models/evaluation/audit"),
    "fetch": ("utils/data/fetch",),
    "detection": ("utils/detect", "models/detect", "detect.py", "hubconf.py"),
    "export": ("utils/export", "models/export", "backend/onnx", "export.py"),
    "serving": ("utils/serve",),
    "evolution": ("utils/evolution",),
    "loggers": ("utils/report/loggers.py",),
    "set-up": ("utils/setup",),
}
# Served images are detected in; a comparison runs in the environments that set-up makes.
STANDS_ON = {("serving", "detection"), ("detection", "serving"), ("comparison", "set-up")}


def wing_of(path: Path) -> str:
    """The wing that a file belongs to; "" for a file of the core."""
    name = name_of(path)
    return next(
        (
            wing
            for wing, places in WINGS.items()
            if any(name == place or name.startswith(f"{place}/") for place in places)
        ),
        "",
    )


def test_listed_wings_exist() -> None:
    assert [
        place for places in WINGS.values() for place in places if not (PROJECT / place).exists()
    ] == []


def test_neither_core_nor_wings_import_another_wing() -> None:
    product = {module: path for module, path in FILES.items() if room_of(path) in BUDGETS}
    found = {
        (name_of(path), name_of(product[other]))
        for module, path in product.items()
        for other in graph()[module] & product.keys()
        if room_of(path) != "duet"  # as a script, it imports what a function of it needs
        and (wing := wing_of(product[other]))
        and wing != wing_of(path)
        and (wing_of(path), wing) not in STANDS_ON
    }
    assert found == set()


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product without any wing."""
    folder = tmp_path_factory.mktemp("core") / "duet"
    for part in ("backend", "data", "duet", "models", "utils", "train.py", "val.py"):
        copy(part, folder)
    for place in (place for places in WINGS.values() for place in places):
        path = folder / place
        if path.exists():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def copy(part: str, folder: Path) -> None:
    source, target = PROJECT / part, folder / part
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, symlinks=True, ignore=ignored)
    else:
        shutil.copy(source, target)


def run(folder: Path, line: str) -> str:
    """Run a script of a copy on the backend of this suite; return what it prints."""
    words = [*line.split(), "--backend", backend.use(), "--img", "64"]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_core_trains_and_validates_and_one_wing_detects(core: Path) -> None:
    write_tiny_model(core)
    data = write_small_dataset(core).relative_to(core)
    weights = "runs/core/weights/last.safetensors"
    run(core, f"train.py --data {data} --epochs 1 --batch 8 --cfg tiny.yaml"
              " --workers 0 --project runs --name core --noplots")  # fmt: skip
    assert "all" in run(core, f"val.py --data {data} --weights {weights}")
    for place in WINGS["detection"]:
        copy(place, core)
    run(
        core,
        f"detect.py --weights {weights} --source shapes/images/val --project runs --name found",
    )
    assert any((core / "runs" / "found").iterdir())
