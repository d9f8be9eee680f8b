"""Mutants of many readers, read in processes of their own; faults with what repeats them.

`python -m tests.fuzz.campaign` reads them and prints the faults: `make fuzz`. Each mutant is a
function of (reader, seed, index), so that a fault can be repeated.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.child import mutant, readers

MAX_FAULTS = 20  # of a reader; then it is left alone
SHOWN_BYTES = 3000
FOLDER = Path("runs/fuzz")
CHILD = (sys.executable, "-m", "tests.fuzz.child")


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

    def count(self, index: int, kind: str, what: str) -> None:
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
                outcomes[name].count(index, row["kind"], row["what"])
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
    outcomes[name].count(left[name].start, "fault", f"died: {how}\n{message}")
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
                seeds = list(known[name].seeds())
                path = FOLDER / f"{name}-{flags.seed}-{index}" / known[name].file_name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(mutant(known[name], name, seeds, flags.seed, index))
            faults += len(outcome.faults)
    print(f"faults: {faults}; their files are in {FOLDER}" if faults else "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
