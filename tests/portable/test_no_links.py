"""A checkout without symbolic links: a ZIP from a web page, or Windows without developer mode."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from duet import __version__
from duet.backend import use
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_tiny_weights

PARTS = ("backend", "data", "duet", "models", "utils", "setup.py", "pyproject.toml", "README.md",
         "LICENSE", "train.py", "val.py", "detect.py", "export.py", "compare.py")  # fmt: skip


@pytest.fixture(scope="module", params=["text files", "absent"])
def checkout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product whose links are text files, as Git writes them, or absent."""
    folder = tmp_path_factory.mktemp("checkout")
    for part in PARTS:
        if (PROJECT / part).is_dir():
            unused = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / part, folder / part, symlinks=True, ignore=unused)
        else:
            shutil.copy(PROJECT / part, folder / part)
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    assert len(links) == 9
    for link in links:
        target = os.readlink(link)
        link.unlink()
        if request.param == "text files":
            link.write_text(target, encoding="utf-8")
    return folder


def run(checkout: Path, *words: object) -> str:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


HELP = """
import contextlib, runpy, sys
for name in sys.argv[1:]:
    for sys.argv[0], run in ((f"{name}.py", runpy.run_path), ("duet", runpy.run_module)):
        sys.argv[1:] = [name, "--help"][run is runpy.run_path :]
        with contextlib.suppress(SystemExit):
            run(sys.argv[0], run_name="__main__")
"""


def test_scripts_and_commands_run(checkout: Path) -> None:
    assert run(checkout, "-m", "duet", "--version") == f"duet {__version__}\n"
    assert run(checkout, "train.py", "--help").startswith("usage: train.py")
    names = ("train", "val", "detect", "export", "compare")
    lines = run(checkout, "-c", HELP, *names).splitlines()
    shown = [line.split()[1:3] for line in lines if line.startswith("usage: ")]
    assert [words[0] for words in shown[::2]] == [f"{name}.py" for name in names]
    assert shown[1::2] == [["duet", name] for name in names]


def test_dataset_is_checked_and_its_images_are_detected(checkout: Path) -> None:
    data = write_small_dataset(checkout)
    assert "worth knowing" in run(checkout, "-m", "duet", "check", "--data", data)
    flags = ("--weights", write_tiny_weights(checkout), "--img", 64, "--backend", use())
    run(checkout, "detect.py", *flags, "--source", data.parent / "images" / "val")
    assert len(list(checkout.glob("runs/detect/exp/*.*"))) >= 6


def test_pip_builds_the_same_wheel(checkout: Path, tmp_path: Path) -> None:
    pip = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run(checkout, *pip, "--wheel-dir", tmp_path, ".")
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        assert wheel.read("duet/commands/train.py") == (PROJECT / "train.py").read_bytes()
        packed = {name for name in wheel.namelist() if name.startswith("duet/")}
    sources = {
        f"duet/{path.relative_to(PROJECT)}"
        for part in ("backend", "data", "models", "utils")
        for path in (PROJECT / part).rglob("*")
        if path.suffix in (".py", ".css", ".html", ".json", ".yaml")
    }
    assert sources <= packed
