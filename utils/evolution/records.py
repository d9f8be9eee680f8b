"""The trials of a search in its file, from which it goes on.

Before: `search.py` begins or ends a trial. After: the same command, later. The file is written
whole each time, so that it is never torn: Optuna's own files are not, and one of its storages reads
pickles.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from utils.errors import UserError
from utils.evolution.ranges import Range
from utils.files.atomic import atomic_text_file
from utils.files.json import complete, parse_json
from utils.files.regular import read_text

RUNNING, DONE, PRUNED, FAILED = STATES = ("running", "done", "pruned", "failed")
FILE = "trials.jsonl"
MAX_BYTES = 2**24  # 10,000 trials of 300 epochs have fewer
MOST_FITNESS = 2.0  # of boxes and of masks together
REMEDY = "begin a new search under another --name"
KIND = {
    "number": int,
    "state": str,
    "values": {str: float},
    "fitness": [float],
    "figures": {str: float},
}


@dataclass
class TrialRecord:
    """A trial: what it trained with, and what came of it."""

    number: int  # from 0
    values: Mapping[str, float]  # of the hyper-parameters that are searched
    state: str = RUNNING
    fitness: list[float] = field(default_factory=list)  # of each epoch; NaN where there is none
    figures: Mapping[str, float] = field(default_factory=dict)  # of its best epoch, by column

    @property
    def best(self) -> float:
        """The best epoch's fitness; 0 without any."""
        return max((value for value in self.fitness if value > 0), default=0.0)


def best_of(records: Iterable[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest fitness of those that trained to their end."""
    done = [record for record in records if record.state == DONE]
    return max(done, key=lambda record: record.best, default=None)


def write_records(folder: Path, records: Sequence[TrialRecord]) -> None:
    """Write all trials, one per line."""
    with atomic_text_file(folder / FILE) as file:
        for record in records:
            file.write(json.dumps(dataclasses.asdict(record)) + "\n")


def read_records(folder: Path, ranges: Mapping[str, Range]) -> list[TrialRecord]:
    """Read the trials of a search; [] if it has begun none.

    Args:
        ranges: of the hyper-parameters that are searched.

    Raises:
        UserError: the file cannot be read, or is not of such a search.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
        documents = [complete(parse_json(line), KIND) for line in lines]
    except OSError as error:
        raise UserError(f"--evolve: {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--evolve: {path} holds no trials: {error!s:.200}; {REMEDY}") from error
    records = [TrialRecord(**document) for document in documents]
    for number, record in enumerate(records):
        if record.number != number or not _is_sound(record, ranges):
            line = f"{path}, line {number + 1}"
            raise UserError(f"--evolve: {line}: no trial of this search; {REMEDY}")
    return records


def _is_sound(record: TrialRecord, ranges: Mapping[str, Range]) -> bool:
    """Return whether state, values and fitness are some that a search writes."""
    return (
        record.state in STATES
        and record.values.keys() == ranges.keys()
        and all(found.low <= record.values[name] <= found.high for name, found in ranges.items())
        and all(math.isnan(value) or 0 <= value <= MOST_FITNESS for value in record.fitness)
        and (record.state != DONE or bool(record.fitness))
    )
