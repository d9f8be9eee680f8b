"""Commands run by a Python that lacks the packages, is too old, has closed streams, or is ended."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duet import backend
from duet.__main__ import COMMANDS as SUBCOMMANDS
from duet.utils.processes import start
from duet.utils.processes.start import EXIT_INTERRUPTED
from duet.utils.project import PROJECT
from duet.utils.weights.load import EXPORTED
from tests.structure.test_imports import PYTHON_FILES, module_of

COMMANDS = ["train.py", "val.py", "compare.py", "-m duet doctor", "-m duet weights",
    "-m duet records", "-m tests.parity", "-m benchmarks"]  # fmt: skip
# They run before anything is installed, are started by a command that was, or become a command.
WITHOUT_GATE = ("utils/setup/", "tests/", "benchmarks/", "segment/", "classify/", "benchmarks.py")
GATED = ("tests/parity/__main__.py", "benchmarks/__main__.py")
STARTED_BY_DUET = {module: name for name, (module, _) in SUBCOMMANDS.items()}
# Read by Python before or while it reads the gate.
READ_BEFORE = [
    "duet/__init__.py", "utils/errors.py",
    "utils/__init__.py", "utils/project.py",
    "utils/processes/__init__.py", "utils/processes/start.py",
    "models/__init__.py", "models/detect/__init__.py",
]  # fmt: skip


MAINS = [
    path.relative_to(PROJECT)
    for path in PYTHON_FILES
    if "\nif __name__ == " in path.read_text()
    and path != PROJECT / "utils/export/opening.py"  # a child process, ended by its command
]


def command_files() -> list[Path]:
    """The files that run as commands, and have to begin with the gate."""
    return [
        PROJECT / path
        for path in MAINS
        if (not path.as_posix().startswith(WITHOUT_GATE) or path.as_posix() in GATED)
        and module_of(PROJECT / path).removesuffix(".__main__") not in STARTED_BY_DUET
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_python_without_packages_gets_a_two_line_remedy(command):
    # -S leaves the folder of the packages out.
    python = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*python, *command.split()], cwd=PROJECT, env=environment, capture_output=True, text=True
    )
    first, second = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert first.startswith("error: ") and " lacks the packages cv2, matplotlib, numpy, " in first
    assert "make setup" in second or ".venv/" in second


@pytest.mark.parametrize("path", command_files(), ids=lambda path: path.stem)
def test_every_command_checks_its_python_first(path):
    statements = ast.parse(path.read_text()).body
    code = [ast.unparse(node) for node in statements if not isinstance(node, ast.Expr)]
    assert [line for line in code if "__future__" not in line][:2] == [
        "from duet.utils.processes.start import start_command",
        "if __name__ == '__main__':\n    start_command()",
    ]


@pytest.mark.parametrize(
    "path",
    [*command_files(), *(PROJECT / name for name in READ_BEFORE)],
    ids=lambda path: path.relative_to(PROJECT).as_posix(),
)
def test_entry_files_use_only_python_3_8_syntax(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_old_python_is_reported_with_its_version(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 18, "final", 0))
    assert " is Python 3.8, but 3.10 or newer is required\n" in str(start.python_problem())


def test_complete_python_has_no_problem():
    assert start.python_problem() is None


def test_complete_environments_are_suggested(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "PROJECT", tmp_path)
    (tmp_path / "Makefile").touch()  # of a checkout
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cv2" else 1)
    assert str(start.python_problem()).splitlines() == [
        f"{sys.executable} lacks the packages cv2",
        f"run `make setup` in {tmp_path}, then use .venv/torch/bin/python instead; or run "
        f"`{sys.executable} -m pip install -r {tmp_path}/requirements.txt`",
    ]
    for name in ("torch", "half-made"):
        (tmp_path / ".venv" / name).mkdir(parents=True)
    (tmp_path / ".venv" / "torch" / "duet-environment.json").touch()
    assert str(start.python_problem()).splitlines()[1] == (
        f"use {tmp_path}/.venv/torch/bin/python instead"
    )


PROGRAM = """
import os, subprocess, sys
from duet.utils.processes.start import start_command
start_command()
with open("written", "w") as file:
    assert file.fileno() > 2
    os.write(1, b"by a library"), os.write(2, b"by a crash")
    print(sys.stdin.read(), sys.stdout.isatty(), file=sys.stderr)
    subprocess.run([sys.executable, "-c", "import sys; print('by a process', file=sys.stderr)"])
"""


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_closed_stream_is_not_replaced_by_an_opened_file(tmp_path, closed):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, preexec_fn=lambda: [os.close(n) for n in closed],
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "" if 1 in closed else "by a library")
    reported = "by a crash False\nby a process\n"
    assert done.stderr == ("" if 2 in closed else reported)
    assert (tmp_path / "written").read_text() == ""


SCRIPTS = sorted(path for path in MAINS if path.parts[0] not in ("tests", "benchmarks"))
# Takes the place of a package that a script imports, and interrupts the import.
INTERRUPTION = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


def command_of(script):
    """How a user starts it."""
    if len(script.parts) == 1:
        return [str(script)]
    module = module_of(PROJECT / script).removesuffix(".__main__")
    names = {"duet": "train", **STARTED_BY_DUET}
    return ["-m", "duet", names[module]] if module in names else ["-m", module]


def run(arguments, folder, package, text=INTERRUPTION):
    """Run Python with a package of this text."""
    (folder / f"{package}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_control_c_during_script_import_ends_with_one_line(script, tmp_path):
    # One that the script imports for itself.
    package = "hashlib" if script.parts[:2] == ("utils", "setup") else "argparse"
    done = run(command_of(script), tmp_path, package)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


CHOICE = """
from duet import backend
from duet.utils.processes.command import run_command
run_command(backend.use)
"""


def test_control_c_during_framework_import_ends_the_command(tmp_path):
    done = run(["-c", CHOICE], tmp_path, backend.use())
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="not a checkout of git")
def test_git_ignores_weights_and_results():
    names = [f"yolov5n{ending}" for ending in (".pt", ".safetensors", *EXPORTED)]
    names += ["runs/train/exp/results.csv", "datasets/shapes/a.jpg"]
    # A folder is ignored by what is in it.
    paths = [f"{name}/a" if name.endswith(("_model", ".mlpackage")) else name for name in names]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *paths], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.stdout.split() == paths
