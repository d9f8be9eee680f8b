"""Mutants of many readers, read in processes of their own; faults with what repeats them.

`python -m tests.fuzz.campaign` reads them and prints the faults: `make fuzz`. With `--child` it is
one of these processes: it reads mutants one after the other, each within stated time and memory,
and prints a line of JSON for each, after one for the seeds of its reader. If it dies, the mutant
after the last line is the cause.
"""

import importlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from duet import backend
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.label_file import BrokenLabelError
from duet.utils.errors import BrokenSourceError, UserError
from tests.fuzz.mutants import MIB, Reader

REFUSALS = (UserError, BrokenImageError, BrokenLabelError, BrokenSourceError)
# Stated limits: what each byte may cost, in processor time and in memory. `Reader` has the rest.
SECONDS_A_BYTE = 4e-5
BYTES_A_BYTE = 100
MAX_MESSAGE = 5000  # characters; it is for a person, whatever the file holds
HARD_MEMORY = 4096 * MIB  # address space above which an allocation fails
SILENT_SECONDS = 120  # of a mutant: it waits for something, as it may not compute so long
MAX_FAULTS = 20  # of a reader; then it is left alone
SHOWN = 3000  # characters of a fault
FOLDER = Path("runs/fuzz")
CHILD = (sys.executable, "-m", "tests.fuzz.campaign", "--child")
SEEDS = "seeds"
KINDS = ("text", "binary", "weights")  # of the modules of readers


def readers() -> Mapping[str, Reader]:
    """Choose a backend as the product does, then return all readers by name."""
    backend.use()
    modules = (importlib.import_module(f"tests.fuzz.{kind}_readers") for kind in KINDS)
    return {name: reader for module in modules for name, reader in module.READERS.items()}


# In a process of their own.


def read_tasks(seed: int, tasks: Sequence[str]) -> None:
    """Read mutants, as READER:FIRST:LAST."""
    known = readers()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for name, first, last in (task.split(":") for task in tasks):
            reader, path = known[name], Path(folder, name, known[name].file_name)
            path.parent.mkdir()
            seeds = list(reader.seeds())
            with noting_who_reads() as modules:
                for content in seeds:  # imports and caches are no cost of a mutant
                    path.write_bytes(reader.seal(content))
                    reader.read(path)
            print(json.dumps([name, int(first) - 1, SEEDS, sorted(modules)]), flush=True)
            _limit_memory()
            for index in range(int(first), int(last)):
                content = reader.mutant(name, seeds, seed, index)
                path.write_bytes(content)
                found = judge(reader, path, len(content))
                print(json.dumps([name, index, *found]), flush=True)


@contextmanager
def noting_who_reads() -> Iterator[set[str]]:
    """Collect the modules that call what reads in utils/files, in any thread."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name.startswith(("read_", "open_", "parse_")):
            caller = frame.f_back
            while caller and caller.f_globals.get("__name__") == "contextlib":
                caller = caller.f_back
            if caller and str(frame.f_globals.get("__name__")).startswith("duet.utils.files."):
                found.add(caller.f_globals["__name__"])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + HARD_MEMORY, hard))


def judge(reader: Reader, path: Path, size: int) -> tuple[str, str]:
    """Read one file; return whether it was "read" or "refused", or the "fault" and what it was."""
    seconds, memory = reader.seconds + SECONDS_A_BYTE * size, reader.memory_bytes
    memory += BYTES_A_BYTE * size
    _end_after(seconds)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, VmHWM
    before, start = _status("VmRSS"), time.process_time()
    found = _outcome(reader, path)
    took, cost = time.process_time() - start, _status("VmHWM") - before
    if cost > memory:
        return "fault", f"{cost // MIB} MiB for {size} bytes, at most {memory // MIB} MiB allowed"
    if took > seconds:
        return "fault", f"{took:.1f} s for {size} bytes, at most {seconds:.1f} s allowed"
    return found


def _outcome(reader: Reader, path: Path) -> tuple[str, str]:
    try:
        reader.read(path)
    except REFUSALS as error:
        text = str(error)
        if len(text) > MAX_MESSAGE:
            return "fault", f"a message of {len(text)} characters: {text[:SHOWN]}"
        return "refused", text[:SHOWN]
    except BaseException:
        return "fault", "".join(traceback.format_exc(limit=-6))[-SHOWN:]
    return "read", ""


def _end_after(seconds: float) -> None:
    """Let the kernel end this process if it computes far beyond the limit, or waits too long."""
    signal.alarm(SILENT_SECONDS)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + 2 * seconds) + 1, hard))


def _status(field: str) -> int:
    """Return a size in bytes of /proc/self/status."""
    _, text = Path("/proc/self/status").read_text().split(f"{field}:")
    return 1024 * int(text.split()[0])


# In the process that starts them.


@dataclass
class Outcome:
    """What became of a reader's mutants.

    Attributes:
        kinds: how many were read, refused, or neither.
        faults: what happened to the last ones, by index.
        modules: that read the seeds.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)

    def add(self, index: int, kind: str, what: str) -> None:
        if kind == SEEDS:
            self.modules.update(what)
            return
        self.kinds[kind] += 1
        if kind == "fault":
            self.faults[index] = what

    def report(self, name: str, seed: int) -> str:
        """Return the faults of a reader with the commands that repeat them."""
        again = f"python -m tests.fuzz.campaign --reader {name} --seed {seed} --only"
        return "".join(f"\n{again} {index}\n{what}\n" for index, what in self.faults.items())


def read_mutants(
    seed: int, indices: Mapping[str, range], command: Sequence[str] = CHILD
) -> dict[str, Outcome]:
    """Read mutants of each reader by name; after the death of a process go on in another one.

    Raises:
        RuntimeError: a reader refuses its own seeds.
    """
    outcomes = {name: Outcome() for name in indices}
    left = dict(indices)
    while left := {
        name: rest for name, rest in left.items()
        if rest and len(outcomes[name].faults) < MAX_FAULTS
    }:  # fmt: skip
        _run_child([*command, str(seed)], left, outcomes)
    return outcomes


def _run_child(
    command: Sequence[str], left: dict[str, range], outcomes: Mapping[str, Outcome]
) -> None:
    """Read mutants in one process until it ends or dies; take them out of `left`."""
    tasks = [f"{name}:{rest.start}:{rest.stop}" for name, rest in left.items()]
    started = set()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [*command, *tasks],
            stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        for name, index, kind, what in map(json.loads, child.stdout):
            started.add(name)
            outcomes[name].add(index, kind, what)
            left[name] = range(index + 1, left[name].stop)
        code = child.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace")[-SHOWN:]
    if code == 0:
        return
    name = next((name for name, rest in left.items() if rest), "")
    if name not in started:
        raise RuntimeError(f"{name} does not read its own seeds:\n{message}")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    outcomes[name].add(left[name].start, "fault", f"died: {how}\n{message}")
    left[name] = left[name][1:]


def main() -> int:
    known = readers()
    parser = ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("--reader", nargs="+", choices=known, default=list(known))
    parser.add_argument("--mutants", type=int, default=1000, help="of each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the index of one mutant, to repeat it")
    flags = parser.parse_args()
    indices = range(flags.mutants) if flags.only is None else range(flags.only, flags.only + 1)
    faults = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(lambda name: read_mutants(flags.seed, {name: indices}), flags.reader):
            ((name, outcome),) = found.items()
            print(f"{name:20} {dict(outcome.kinds)}{outcome.report(name, flags.seed)}", flush=True)
            for index in outcome.faults:
                path = FOLDER / f"{name}-{flags.seed}-{index}" / known[name].file_name
                path.parent.mkdir(parents=True, exist_ok=True)
                seeds = list(known[name].seeds())
                path.write_bytes(known[name].mutant(name, seeds, flags.seed, index))
            faults += len(outcome.faults)
    print(f"faults: {faults}; their files are in {FOLDER}" if faults else "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        read_tasks(int(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main())
