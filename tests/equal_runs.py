"""Whether two runs gave the same results, bit for bit, in everything but times."""

from __future__ import annotations

import csv
import dataclasses
import json
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.weights.checkpoint import Header, load_checkpoint

SECTIONS = ("model", "ema", "optimizer")


def assert_equal_runs(folder: Path, reference: Path) -> None:
    """States, results.csv and work.json; OneFlow too repeats itself on one CPU thread."""
    for name in ("last", "best"):
        found, expected = (
            load_checkpoint(run / "weights" / f"{name}.safetensors") for run in (folder, reference)
        )
        for section in SECTIONS:
            left, right = getattr(found, section), getattr(expected, section)
            assert left.keys() == right.keys()
            for key, array in left.items():
                np.testing.assert_array_equal(array, right[key], f"{name}: {section} {key}")
        assert timeless(found.header) == timeless(expected.header)
    assert rows(folder) == rows(reference)
    works = [json.loads((run / "work.json").read_text()) for run in (folder, reference)]
    for work in works:
        del work["work"]["settings"]
    assert works[0] == works[1]


def timeless(header: Header) -> dict[str, Any]:
    """A header without seconds and without where the run lies."""
    document = dataclasses.asdict(header)
    del document["progress"]["seconds"], document["settings"]
    kept = [not name.startswith("seconds/") for name in document["progress"]["columns"]]
    cells = document["progress"]["results"]
    document["progress"]["results"] = [list(compress(row, kept)) for row in cells]
    return document


def rows(folder: Path) -> list[dict[str, str]]:
    """Those of results.csv without seconds."""
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return [
            {name: value for name, value in row.items() if not name.startswith("seconds/")}
            for row in csv.DictReader(file)
        ]
