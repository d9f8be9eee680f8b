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
import random
import re
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from duet import backend
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.label_file import BrokenLabelError
from duet.utils.errors import BrokenSourceError, UserError

MIB = 2**20
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


@dataclass(frozen=True)
class Reader:
    """A way by which bytes from outside come in.

    Attributes:
        read: reads the file as the product does, and uses what it gets as far as that is cheap.
            It returns, or raises one of `REFUSALS`; anything else is a fault.
        seeds: contents of valid files.
        file_name: of the mutants; some readers go by it.
        words: byte strings that no seed has and that mean something here, hostile ones among them.
        seal: puts checksums and lengths right again, so that mutants come past their check.
        memory_bytes: that a small file may cost.
        seconds: likewise, of processor time.
    """

    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    file_name: str
    words: Sequence[bytes] = ()
    seal: Callable[[bytes], bytes] = bytes
    memory_bytes: int = 64 * MIB
    seconds: float = 1.0

    def mutant(self, name: str, seeds: Sequence[bytes], seed: int, index: int) -> bytes:
        """Return the content of mutant `index`: a function of (reader, seed, index)."""
        draw = random.Random(f"{name} {seed} {index}")
        return self.seal(mutate(seeds, (*self.words, *COMMON_WORDS), draw))


MAX_BYTES = 2**18
MANY_CHANGES = 0.4  # the chance of one more change
COMMON_WORDS = (
    b"\x00", b"\xff", b"\xff" * 8, b"\n", b"\r\n", b"\x1b[2J", b"\xc3\x28", b"\xed\xa0\x80",
    b" " * 100, b"A" * 5000,
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, 8, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40,
    2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
VALUES = (
    b"0", b"-1", b"1e999", b"nan", b"-inf", b"0.5", b"2147483648", b"1000000000000", b"9" * 400,
    b"9" * 5000, b"0x10", b"1_0", b"true", b"null", b"''", b"[]", b"{}", b'"x"', b"[1, 2]",
    b'{"a": 1}', b"1" * 17, b"-9223372036854775809", b"1e-320",
)  # fmt: skip
CHANGES = (
    "remove", "cut", "repeat", "flip", "insert", "overwrite", "number", "value", "value", "splice",
)  # fmt: skip
# What reads as one value in JSON, YAML, CSV or a list of numbers.
VALUE = re.compile(rb"""-?[\d.]+(e[-+]?\d+)?|"[^"]{0,40}"|true|false|null|NaN""")


def mutate(seeds: Sequence[bytes], words: Sequence[bytes], draw: random.Random) -> bytes:
    """Return one of the seeds with one change or a few, at most 256 KiB."""
    content, more = draw.choice(seeds), True
    while more:
        content = change(content, words, seeds, draw)[:MAX_BYTES]
        more = draw.random() < MANY_CHANGES
    return content


def change(
    content: bytes, words: Sequence[bytes], seeds: Sequence[bytes], draw: random.Random
) -> bytes:
    """Return the content with another part in place of one, which may be empty."""
    start, end = span(content, draw)
    old = content[start:end]
    match draw.choice(
        [
            "remove",
            "cut",
            "repeat",
            "flip",
            "insert",
            "overwrite",
            "number",
            "value",
            "value",
            "splice",
        ]
    ):
        case "remove":
            new = b""
        case "cut":
            new, end = b"", len(content)
        case "repeat":
            new = old * int(2 ** draw.uniform(0, 12))
        case "flip":
            end = min(end, start + 8)
            new = bytes(x ^ (1 << draw.randrange(16)) % 256 for x in content[start:end])
        case "insert":
            new = word(words, draw) + old
        case "overwrite":
            new = word(words, draw)
            end = start + len(new)
        case "number":
            width = draw.choice((1, 2, 4, 8))
            value = draw.choice(NUMBERS) % 256**width
            new, end = value.to_bytes(width, draw.choice(("big", "little"))), start + width
        case "value":
            found = [place.span() for place in VALUE.finditer(content)]
            start, end = draw.choice(found or [(start, end)])
            new = draw.choice(VALUES)
        case "splice":
            other = draw.choice((content, *seeds))
            new = other[slice(*span(other, draw))] + old * draw.getrandbits(1)
    return content[:start] + new + content[end:]


def span(content: bytes, draw: random.Random) -> tuple[int, int]:
    """Return the bounds of a part, short ones more often than long ones."""
    start = draw.randrange(len(content) + 1)
    return start, start + int((len(content) + 1) ** draw.random())


def word(words: Sequence[bytes], draw: random.Random) -> bytes:
    """Return a word, now and then many times: nesting, long names, many entries."""
    return draw.choice(words) * (int(2 ** draw.uniform(1, 13)) if draw.randrange(8) == 0 else 1)


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
