"""Mutants of many readers, read in processes of their own; faults with what repeats them.

`python -m tests.fuzz.campaign` reads them and prints the faults: `make fuzz`. Each mutant is a
function of (reader, seed, index), so that a fault can be repeated.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.child import mutant, readers
from tests.fuzz.reader import Reader

MAX_FAULTS = 20  # of a reader; then it is left alone
SHOWN_BYTES = 3000
FOLDER = Path("runs/fuzz")


@dataclasses.dataclass
class Fault:
    """A mutant that was neither read nor refused."""

    reader: str
    seed: int
    index: int
    what: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz.campaign --reader {self.reader} --seed {self.seed} --only"
        return f"{again} {self.index}\n{self.what}"


@dataclasses.dataclass
class Outcome:
    """What became of the mutants of a reader, or of several."""

    kinds: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[Fault] = dataclasses.field(default_factory=list)
    modules: set[str] = dataclasses.field(default_factory=set)  # that read the seeds

    def add(self, other: Outcome) -> None:
        self.kinds += other.kinds
        self.faults += other.faults

    def count(self, kind: str, fault: Fault) -> None:
        self.kinds[kind] += 1
        if kind == "fault":
            self.faults.append(fault)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.kinds[kind]} {kind}" for kind in ("read", "refused", "fault"))
        return f"{self.kinds.total():6} mutants: {counts}"


CHILD = (sys.executable, "-m", "tests.fuzz.child")


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
        _run_child([*command, str(seed)], seed, left, outcomes)
    return outcomes


def _run_child(
    command: Sequence[str], seed: int, left: dict[str, range], outcomes: Mapping[str, Outcome]
) -> None:
    """Read mutants in one process until it ends or dies; take them out of `left`."""
    tasks = [f"{name}:{rest.start}:{rest.stop}" for name, rest in left.items()]
    ready = set()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [*command, *tasks],
            stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        ) as child,
    ):  # fmt: skip
        assert child.stdout is not None
        for row in map(json.loads, child.stdout):
            name, index = row["reader"], row["index"]
            left[name] = range(index + 1, left[name].stop)
            if name in ready:
                outcomes[name].count(row["kind"], Fault(name, seed, index, row["what"]))
            else:  # of the seeds
                outcomes[name].modules |= set(row["modules"])
                ready.add(name)
        code = child.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace")[-SHOWN_BYTES:]
    if code == 0:
        return
    name = next((name for name, rest in left.items() if rest), "")
    if name not in ready:
        raise RuntimeError(f"{name} does not read its own seeds:\n{message}")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    died = Fault(name, seed, left[name].start, f"died: {how}\n{message}")
    outcomes[name].count("fault", died)
    left[name] = left[name][1:]


def main() -> int:
    known = readers()
    flags = parse_flags(known)
    indices = range(flags.mutants) if flags.only is None else range(flags.only, flags.only + 1)
    begin, total = time.monotonic(), Outcome()
    with ThreadPoolExecutor(flags.processes) as pool:
        for outcomes in pool.map(
            lambda name: read_mutants(flags.seed, {name: indices}), flags.reader
        ):
            for name, outcome in outcomes.items():
                print(f"{name:20}{outcome}", flush=True)
                total.add(outcome)
    print(f"{'all':20}{total}\nin {time.monotonic() - begin:.0f} s; seed {flags.seed}")
    for fault in total.faults:
        print(f"\n{keep(fault, known[fault.reader])}\n{fault}")
    return 1 if total.faults else 0


def parse_flags(known: Mapping[str, Reader]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("--reader", nargs="+", choices=known, default=list(known))
    parser.add_argument("--mutants", type=int, default=1000, help="of each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the index of one mutant, to repeat it")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def keep(fault: Fault, reader: Reader) -> Path:
    """Write the mutant of a fault into runs/fuzz; return its path."""
    content = mutant(reader, fault.reader, list(reader.seeds()), fault.seed, fault.index)
    path = FOLDER / f"{fault.reader}-{fault.seed}-{fault.index}" / reader.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    sys.exit(main())
