"""Starts a program in several ranks; looks at their sockets, and at what is left of them.

Two ranks are started once for all tests that look at what they did.
"""

import contextlib
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from duet import backend
from duet.utils.processes.exit_status import EXIT_DONE
from duet.utils.project import PROJECT
from tests.distributed.training_worker import CASES, write_inputs
from tests.small import write_small_dataset, write_tiny_model

MARK = "JOB_MARK"
SCRIPT = Path(__file__).parent / "faulty_training.py"
TRAIN_FLAGS = ("--img", "64", "--batch", "2", "--device", "cpu", "--workers", "0")
LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp
LOOPBACK = {"lo"}
POLL_SECONDS = 0.03
SECONDS_TO_START = 120  # both are limits against hanging, far above the usual times
SECONDS_TO_END = 25  # less than the 30 for which torchrun waits for what ignores its SIGTERM


def launcher(backend: str, ranks: int) -> list[str]:
    """Return the command line of a launcher up to the program's own arguments."""
    if backend == "torch":
        command = ["torch.distributed.run", "--standalone"]
    else:
        command = ["oneflow.distributed.launch", "--master_port", str(free_port())]
    return [sys.executable, "-m", *command, "--nproc_per_node", str(ranks)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# Needs no framework: PyTorch's launcher imports it, for more than a second.
OWN_LAUNCHER = """
import os, sys
from duet.utils.processes.launch import run_ranks
command = [sys.executable, "-u", *sys.argv[2:]]
sys.exit(run_ranks(command, os.environ["YOLO_BACKEND"], {"WORLD_SIZE": sys.argv[1]}))
"""


def run_ranks(ranks: int, *arguments: str, raw: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a Python module of the tests as several ranks, with the backend of YOLO_BACKEND.

    raw: by the framework's launcher, rather than by our own.
    """
    own = [sys.executable, "-c", OWN_LAUNCHER, str(ranks)]
    return subprocess.run(
        [*(launcher(os.environ["YOLO_BACKEND"], ranks) if raw else own), *arguments],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Processes:
    """A command that starts ranks; a mark in the environment of its processes identifies them.

    Args:
        folder: for what it prints.
        environment: added.
    """

    def __init__(
        self, folder: Path, command: Sequence[object], environment: Mapping[str, str] | None = None
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.output = folder / f"output-{self.mark}.txt"
        added = {"YOLO_BACKEND": backend.use(), "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                list(map(str, command)),
                cwd=PROJECT,
                env={**os.environ, **added, **(environment or {}), MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, path: Path) -> None:
        """Wait until the job has written a file."""
        deadline = time.monotonic() + SECONDS_TO_START
        while not path.exists():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, f"no {path}:\n{self.text()}"
            time.sleep(0.02)

    def end(self, after: Path | None = None) -> tuple[int, str]:
        """Return exit code and output of the command, which must end completely and in time."""
        try:
            if after:
                self.wait_for(after)
            code = self.process.wait(SECONDS_TO_END if after else SECONDS_TO_START)
            deadline = time.monotonic() + SECONDS_TO_END
            while self.processes():
                assert time.monotonic() < deadline, f"{self.processes()} are left:\n{self.text()}"
                time.sleep(0.1)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.text()}") from None
        finally:
            for process in self.processes():
                os.kill(process, 9)
        return code, self.text()

    def processes(self) -> list[int]:
        """Return the job's processes that are still there."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:  # it has ended, or is not ours
                continue
            if f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                found.append(int(folder.name))
        return found

    def text(self) -> str:
        return self.output.read_text(errors="replace")


def start_training(
    folder: Path, *flags: object, script: Path = PROJECT / "train.py", ranks: int = 2,
    raw: bool = False, environment: Mapping[str, str] | None = None,
) -> Processes:  # fmt: skip
    """Start the real train.py, or a script that runs it, on a CPU.

    raw: under a plain launcher, rather than by --nproc.
    """
    start = launcher(backend.use(), ranks) if raw else [sys.executable]
    several = () if raw or ranks == 1 else ("--nproc", ranks)
    return Processes(folder, [*start, script, *TRAIN_FLAGS, *flags, *several], environment)


class Listener(NamedTuple):
    """A socket that takes connections."""

    address: str
    port: int
    interfaces: frozenset[str]  # of its network namespace

    @property
    def is_exposed(self) -> bool:
        """Whether another machine could reach it, if no firewall hinders."""
        if self.interfaces == LOOPBACK:
            return False
        address = ipaddress.ip_address(self.address)
        return not (getattr(address, "ipv4_mapped", None) or address).is_loopback


def listeners(process: int) -> set[Listener]:
    """Return the listening TCP sockets of a process; none if it has ended."""
    folder = Path("/proc", str(process))
    try:
        mine = set(_open_files(folder / "fd"))
        lines = (folder / "net" / "dev").read_text().splitlines()[2:]
        interfaces = frozenset(line.partition(":")[0].strip() for line in lines)
        tables = [(folder / "net" / name).read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return set()
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {
        Listener(*_place(row[1]), interfaces)
        for row in rows
        if row[3] == LISTENING and f"socket:[{row[9]}]" in mine
    }


def _open_files(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(file)


def _place(text: str) -> tuple[str, int]:
    """Return address and port of `0100007F:1F90`: words of four bytes in the host's order."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return str(ipaddress.ip_address(words)), int(port, 16)


def watch(processes: Callable[[], Iterable[int]], is_over: Callable[[], bool]) -> set[Listener]:
    """Return all listening sockets that the processes had until it was over."""
    seen: set[Listener] = set()
    while not is_over():
        for process in processes():
            seen |= listeners(process)
        time.sleep(POLL_SECONDS)
    return seen


# Ranks that several tests look at.

EPOCHS = 3  # of six batches, and two of each validation


class Runs:
    """Trainings of one dataset in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data, cfg = write_small_dataset(folder), write_tiny_model(folder)
        self.flags = ["--data", data, "--cfg", cfg, "--epochs", EPOCHS, "--noplots", "--exist-ok"]
        self.flags += ["--sync-bn", "--project", folder, "--resume", "auto"]
        self.temporary = folder / "temporary"
        self.temporary.mkdir()

    def start(self, name, *flags, how=None, rank=0, phase="", step=0, **options) -> Processes:
        environment = self.environment(how, rank, phase, step)
        run = [*self.flags, "--name", name, *flags]
        return start_training(self.folder, *run, script=SCRIPT, environment=environment, **options)

    def environment(self, how=None, rank=0, phase="", step=0) -> dict[str, str]:
        """Return the variables that tell the script what goes wrong."""
        fault = {"how": how, "rank": rank, "phase": phase, "step": step}
        return {"TMPDIR": str(self.temporary), "FAULT": json.dumps(fault)}

    def end(self, *arguments, **options) -> tuple[int, str]:
        """Return exit code and output of a training, which must leave only its folder."""
        code, text = self.start(*arguments, **options).end()
        assert not list(self.temporary.glob("duet*"))
        return code, text

    def states(self, name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / name).glob("weights/[!.]*")}


class Whole(NamedTuple):
    """A run of two ranks that nothing interrupts."""

    folder: Path
    printed: str
    listeners: set[Listener]  # that its processes had


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def whole(runs: Runs) -> Whole:
    job = runs.start("whole")
    seen = watch(job.processes, lambda: job.process.poll() is not None)
    code, text = job.end()
    assert code == EXIT_DONE, text
    return Whole(runs.folder / "whole", text, seen)


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what two ranks learn, and print, and what their checks find."""
    folder = tmp_path_factory.mktemp("ranks")
    write_inputs(folder)
    done = run_ranks(2, "-m", "tests.distributed.training_worker", str(folder), "cpu", *CASES)
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder
