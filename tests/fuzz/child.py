"""A process that reads mutants one after the other, each within stated time and memory.

`python -m tests.fuzz.child SEED READER:FIRST:LAST ...` prints a line of JSON a mutant, after one
for the seeds of its reader, with the modules that read them. If it dies, the mutant after the last
line is the cause.
"""

import importlib
import json
import math
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np

from duet import backend
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.label_file import BrokenLabelError
from duet.utils.errors import BrokenSourceError, UserError
from tests.fuzz.reader import MIB, Reader, mutate

REFUSALS = (UserError, BrokenImageError, BrokenLabelError, BrokenSourceError)
# Stated limits: what each byte may cost, in processor time and in memory. `Reader` has the rest.
SECONDS_A_BYTE = 4e-5
BYTES_A_BYTE = 100
MAX_MESSAGE = 5000  # characters; it is for a person, whatever the file holds
HARD_MEMORY = 4096 * MIB  # address space above which an allocation fails
SHOWN_CHARACTERS = 300
# Which modules have readers; each has an entry in READERS.
KINDS = ("text", "dataset", "weights", "further")
FILES = "duet.utils.files."
SILENT_SECONDS = 120  # of a mutant: it waits for something, as it may not compute so long


def mutant(reader: Reader, name: str, seeds: list[bytes], seed: int, index: int) -> bytes:
    """Return the content of mutant `index`: a function of (reader, seed, index)."""
    bits = np.random.Philox(key=[seed, zlib.crc32(name.encode())], counter=[0, 0, 0, index])
    return reader.seal(mutate(seeds, reader.tokens, np.random.Generator(bits)))


def readers() -> Mapping[str, Reader]:
    """Choose a backend as the product does, then return all readers by name."""
    backend.use()
    modules = (importlib.import_module(f"tests.fuzz.{kind}_readers") for kind in KINDS)
    return {name: reader for module in modules for name, reader in module.READERS.items()}


def main(seed: int, tasks: Sequence[str]) -> None:
    known = readers()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for task in tasks:
            name, first, last = task.split(":")
            path = Path(folder, name, known[name].file_name)
            path.parent.mkdir()
            read_mutants(known[name], name, seed, range(int(first), int(last)), path)


def read_mutants(reader: Reader, name: str, seed: int, indices: range, path: Path) -> None:
    """Read the seeds, which must succeed, then the mutants; print a line for each."""
    seeds = list(reader.seeds())
    with noting_who_reads() as modules:
        for content in seeds:  # imports and caches are no cost of a mutant
            path.write_bytes(reader.seal(content))
            reader.read(path)
    row = {"reader": name, "index": indices.start - 1, "modules": sorted(modules)}
    print(json.dumps(row), flush=True)
    _limit_memory()
    for index in indices:
        content = mutant(reader, name, seeds, seed, index)
        path.write_bytes(content)
        kind, what = judge(reader, path, len(content))
        row = {"reader": name, "index": index, "kind": kind, "what": what}
        print(json.dumps(row), flush=True)


@contextmanager
def noting_who_reads() -> Iterator[set[str]]:
    """Collect the modules that call what reads in utils/files, in any thread."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name.startswith(("read_", "open_", "parse_")):
            caller = frame.f_back
            while caller and caller.f_globals.get("__name__") == "contextlib":
                caller = caller.f_back
            if caller and str(frame.f_globals.get("__name__")).startswith(FILES):
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
    used = _status("VmSize")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + HARD_MEMORY, hard))


def judge(reader: Reader, path: Path, size: int) -> tuple[str, str]:
    """Read one file; return whether it was "read" or "refused", or the "fault" and what it was."""
    seconds = reader.seconds + SECONDS_A_BYTE * size
    _end_after(seconds)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, VmHWM
    before, start = _status("VmRSS"), time.process_time()
    kind, what = _outcome(reader, path)
    took, cost = time.process_time() - start, _status("VmHWM") - before
    if took > seconds:
        kind, what = "fault", f"{took:.1f} s for {size} bytes, at most {seconds:.1f} s allowed"
    allowed = reader.memory_bytes + BYTES_A_BYTE * size
    if cost > allowed:
        kind = "fault"
        what = f"{cost // MIB} MiB for {size} bytes, at most {allowed // MIB} MiB allowed"
    return kind, what


def _outcome(reader: Reader, path: Path) -> tuple[str, str]:
    try:
        reader.read(path)
    except REFUSALS as error:
        text = str(error)
        if len(text) > MAX_MESSAGE:
            return "fault", f"a message of {len(text)} characters: {text[:SHOWN_CHARACTERS]}"
        return "refused", text[:SHOWN_CHARACTERS]
    except BaseException:
        return "fault", "".join(traceback.format_exc(limit=-6))[-3000:]
    return "read", ""


def _end_after(seconds: float) -> None:
    """Let the kernel end this process if it computes far beyond the limit, or waits too long."""
    signal.alarm(SILENT_SECONDS)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used + 2 * seconds) + 1, hard))


def _status(field: str) -> int:
    """Return a size in bytes of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise KeyError(field)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
