"""Commands on this system and, on Linux, in a Python that lacks what Windows or macOS lacks."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from duet.backend import use
from duet.utils.export.opening import EXIT_NO_MEMORY
from duet.utils.project import PROJECT
from duet.utils.system.children import EXIT_NO_READER, child_options, signal_group
from tests.environments import END, SEVERAL, wait_until
from tests.small import CLASS_NAMES, write_small_dataset, write_tiny_model, write_tiny_weights
from tests.unit.serve.conftest import Server, image_file

pytestmark = pytest.mark.skipif(use() == "oneflow", reason="OneFlow runs on Linux alone")
EMULATED = Path(__file__).parent / "emulated"
FLAGS = ("--img", 64, "--backend", use())
TRAIN = ("train", "--data", "shapes/shapes.yaml", "--weights", "", "--cfg", "tiny.yaml",
         "--epochs", 1, "--batch", 4, "--noplots", *FLAGS)  # fmt: skip
ENDLESS = tuple(1000 if word == 1 else word for word in TRAIN)  # epochs
COMMANDS = {
    "check": ("check", "--data", "shapes/shapes.yaml"),
    "detect": ("detect", "--weights", "tiny0.safetensors", "--source", "shapes/images/val",
               "--device", "cpu", "--save-txt", *FLAGS),
    "val": ("val", "--weights", "tiny0.safetensors", "--data", "shapes/shapes.yaml", *FLAGS),
    "audit": ("audit", "--weights", "tiny0.safetensors", "--data", "shapes/shapes.yaml",
              "--workers", 0, *FLAGS),
    "weights": ("weights", "show", "tiny0.safetensors"),
    "export": ("export", "--weights", "tiny0.safetensors", "--include", "onnx", *FLAGS),
    "detect with the export": ("detect", "--weights", "tiny0.onnx", "--source",
                               "shapes/images/val", *FLAGS),
}  # fmt: skip
HELPED = ("train", "val", "detect", "export", "compare", "check", "audit", "records", "fetch",
          "serve", "weights", "doctor")  # fmt: skip
# Text that is opened in the encoding of the system, which is not UTF-8 on Windows, is named.
WARNINGS = {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "always::EncodingWarning"}
SYSTEMS = ("windows", "macos") if sys.platform == "linux" else ("",)
WORKERS, RANKS = ("--workers", 2), ("--nproc", 2, "--device", "cpu")
INTERRUPTED = [(SYSTEMS[0], WORKERS), (SYSTEMS[0], RANKS)]
INTERRUPTED += [(system, (*RANKS, *WORKERS)) for system in SYSTEMS[1:]]
# As in a notebook or `python -c`: without a main module that another process could import.
PROGRAM = """
import pathlib
import duet
trained = duet.train(data="shapes/shapes.yaml", weights="", cfg="tiny.yaml", epochs=1, batch_size=4,
                     img=64, workers=2, name="program", backend="torch")
detector = duet.load("tiny0.safetensors", backend="torch")
print(len(detector(list(pathlib.Path("shapes/images/val").iterdir()))), "images")
try:
    detector("shapes/images/val")
except duet.UserError as error:
    print(error)
"""
REPLACING = """
import sys, threading, time
from pathlib import Path
from duet.utils.files.atomic import atomic_text_file
file = open("open.txt", "w", encoding="utf-8")
if "closing" in sys.argv:
    threading.Timer(0.5, file.close).start()
with atomic_text_file(Path("open.txt")) as new:
    new.write("new")
"""


def start(folder: Path, system: str, *words: object) -> subprocess.Popen[str]:
    paths = os.pathsep.join(map(str, (EMULATED, PROJECT) if system else (PROJECT,)))
    environment = {**os.environ, "PYTHONPATH": paths, "EMULATED_SYSTEM": system, **WARNINGS}
    return subprocess.Popen(
        [sys.executable, *map(str, words)], cwd=folder, env=environment, encoding="utf-8",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **child_options(),
    )  # fmt: skip


def run(folder: Path, system: str, *words: object) -> str:
    """Run a Python to its end; return its output."""
    with start(folder, system, *words) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    warned = [line for line in errors.splitlines() if "EncodingWarning" in line]
    assert [line for line in warned if "site-packages" not in line] == []
    return output


def run_several(folder: Path, system: str, commands: Iterable[Sequence[object]]) -> list[str]:
    """Run commands of duet in one process; return their outputs."""
    lines = json.dumps([list(map(str, words)) for words in commands])
    return run(folder, system, "-c", SEVERAL, lines).split(END)[:-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_small_dataset(folder, CLASS_NAMES)
    write_tiny_model(folder)
    write_tiny_weights(folder)
    return folder


@pytest.mark.parametrize("system", SYSTEMS)
def test_help_is_shown(folder: Path, system: str) -> None:
    shown = run_several(folder, system, [(name, "--help") for name in HELPED])
    for name, text in zip(HELPED, shown, strict=True):
        assert text.startswith(f"usage: duet {name}")


@pytest.mark.parametrize("system", SYSTEMS)
def test_commands_run(folder: Path, system: str) -> None:
    fixed = ("check", "--data", "shapes/shapes.yaml", "--fix", f"fixed{system}")
    run_several(folder, system, [*COMMANDS.values(), fixed])
    copies = (folder / f"fixed{system}" / "images").glob("*/*")
    assert {x.name: x.read_bytes() for x in copies} == {
        x.name: x.read_bytes() for x in (folder / "shapes" / "images").glob("*/*")
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_unread_output_ends_a_command(folder: Path, system: str) -> None:
    with start(folder, system, "-u", "-m", "duet", "--help") as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", EXIT_NO_READER)


def numbers_of(folder: Path, name: str) -> list[str]:
    """The results of a training, without its times."""
    text = (folder / "runs/train" / name / "results.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(text.splitlines())
    return [x for column, x in row.items() if not column.strip().startswith("seconds/")]


@pytest.mark.parametrize("system", SYSTEMS)
def test_workers_build_the_same_batches(folder: Path, system: str) -> None:
    commands = [
        (*TRAIN, "--workers", workers, "--cache", cache, "--name", f"{system}{workers}")
        for workers, cache in ((0, "ram"), (2, "disk"))
    ]
    _, output = run_several(folder, system, commands)
    assert "; 2 loader workers" in " ".join(output.split())
    assert numbers_of(folder, f"{system}0") == numbers_of(folder, f"{system}2")


@pytest.mark.parametrize("system", SYSTEMS)
def test_program_without_a_main_guard_trains_with_workers(folder: Path, system: str) -> None:
    *_, found, refusal = run(folder, system, "-c", PROGRAM).splitlines()
    assert (found, refusal) == ("6 images", "shapes/images/val: is a folder, not a regular file")


@pytest.mark.parametrize(("system", "flags"), INTERRUPTED)
def test_ctrl_c_suspends_a_resumable_training(
    folder: Path, system: str, flags: tuple[object, ...], tmp_path: Path
) -> None:
    results = tmp_path / "exp" / "results.csv"
    words = ("-m", "duet", *ENDLESS, *flags, "--project", tmp_path)
    with start(folder, system, *words) as process:
        wait_until(lambda: results.exists() and len(results.read_bytes().splitlines()) > 1, process)
        signal_group(process, signal.SIGINT)  # as a terminal does
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "continue with" in printed.splitlines()[-1]
    resume = ("-m", "duet", "train", "--resume", tmp_path / "exp", "--time-limit", 1e-6)
    with start(folder, system, *resume) as process:
        printed, errors = process.communicate(timeout=120)
    assert process.returncode == 75, errors
    assert "resumed after" in printed and "--time-limit" in printed


@pytest.mark.parametrize("system", SYSTEMS)
def test_request_is_served(folder: Path, system: str) -> None:
    flags = ("--weights", "tiny0.safetensors", "--port", 0, *FLAGS)
    server = start(folder, system, "-m", "duet", "serve", *flags)
    with server, contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        running = Server(server)
        running.until_ready()
        reply = running.ask(body=image_file(), headers={"Content-Type": "image/png"})
        assert reply.status == 200, reply.body
        signal_group(server, signal.SIGINT)
        server.stderr.close()
        assert server.wait(timeout=60) == 0


@pytest.mark.skipif(sys.platform == "darwin", reason="it replaces open files")
def test_file_open_in_another_program_is_waited_for(folder: Path) -> None:
    run(folder, SYSTEMS[0], "-c", REPLACING, "closing")
    assert (folder / "open.txt").read_text(encoding="utf-8") == "new"
    with start(folder, SYSTEMS[0], "-c", REPLACING) as process:
        _, errors = process.communicate(timeout=60)
    assert errors.splitlines()[-1].endswith(
        "it cannot be replaced; close it in other programs: 'open.txt'"
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_process_over_its_memory_limit_is_ended(folder: Path, system: str) -> None:
    program = "import time; from duet.utils.export.opening import *; limit_memory(50 << 20); "
    program += "limit_memory(100 << 20); held = bytearray(b'x') * (70 << 20); time.sleep(0.3); "
    program += "print('more', flush=True); held += bytearray(b'x') * (90 << 20); time.sleep(60)"
    with start(folder, system, "-c", program) as process:
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed) == (EXIT_NO_MEMORY, "more\n"), errors


@pytest.mark.parametrize("system", SYSTEMS)
def test_ranks_that_cannot_share_a_cache_are_refused(folder: Path, system: str) -> None:
    program = "import os; from duet.utils.system.files import *; open_of_process(os.getpid(), 0)"
    with start(folder, system, "-c", program) as process:
        _, errors = process.communicate(timeout=60)
    assert "only Linux shares open files; use one process on this system" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="Windows may be set up for long paths")
def test_path_too_long_for_windows_is_named(folder: Path, tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from duet.utils.files.atomic import *\n"
    program += "with atomic_text_file(Path(sys.argv[1])): pass"
    path = tmp_path.joinpath(*["x" * 60] * 4)
    path.mkdir(parents=True)
    with start(folder, "windows", "-c", program, path / "a.txt") as process:
        _, errors = process.communicate(timeout=60)
    length = len(str(path / "a.txt"))
    assert f"its path has {length} characters: use a folder nearer to the root" in errors
