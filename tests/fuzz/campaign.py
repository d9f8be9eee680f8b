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
from typing import Any

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
    seconds: float = 0.0  # of the slowest mutant
    memory: int = 0  # bytes, of the largest

    def add(self, other: Outcome) -> None:
        self.kinds += other.kinds
        self.faults += other.faults
        self.seconds = max(self.seconds, other.seconds)
        self.memory = max(self.memory, other.memory)

    def note(self, fault: Fault) -> None:
        self.kinds["fault"] += 1
        self.faults.append(fault)

    def __str__(self) -> str:
        return (
            f"{self.kinds.total():6} mutants: {self.kinds['read']} read, "
            f"{self.kinds['refused']} refused, {self.kinds['fault']} faults; "
            f"at most {self.seconds:.2f} s and {self.memory / 2**20:.0f} MiB"
        )


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
            name = row["reader"]
            ready.add(name)
            left[name] = range(row["index"] + 1, left[name].stop)
            _count(outcomes[name], seed, row)
        code = child.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace")[-SHOWN_BYTES:]
    if code == 0:
        return
    name = next((name for name, rest in left.items() if rest), "")
    if name not in ready:
        raise RuntimeError(f"{name} does not read its own seeds:\n{message}")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    outcomes[name].note(Fault(name, seed, left[name].start, f"died: {how}\n{message}"))
    left[name] = left[name][1:]


def _count(outcome: Outcome, seed: int, row: Mapping[str, Any]) -> None:
    if "kind" not in row:  # the seeds have been read
        return
    outcome.seconds = max(outcome.seconds, row["seconds"])
    outcome.memory = max(outcome.memory, row["memory"])
    if row["kind"] == "fault":
        outcome.note(Fault(row["reader"], seed, row["index"], row["what"]))
    else:
        outcome.kinds[row["kind"]] += 1
