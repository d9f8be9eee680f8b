"""Mutants of many readers, read in processes of their own; faults with what repeats them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence

MAX_FAULTS = 20  # of a reader; then it is left alone
SHOWN_BYTES = 3000


@dataclasses.dataclass
class Fault:
    """A mutant that was neither read nor refused."""

    reader: str
    seed: int
    index: int
    what: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --reader {self.reader} --seed {self.seed} --only"
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
