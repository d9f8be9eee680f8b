"""Prints after a whole suite what each folder of tests cost, beside its budget."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
# CPU seconds in one suite, on a core of 2026. A folder above it shows: look at its slowest tests.
BUDGETS = {
    "train": 160, "distributed": 155, "unit/models": 60, "unit/data": 60, "site": 85, "parity": 60,
    "unit/weights": 40, "portable": 65, "package": 30, "export": 35, "unit/scripts": 30,
    "unit/processes": 25, "structure": 25, "conformance": 25, "unit/benchmarks": 20,
    "unit/backend": 15, "unit/export": 15, "unit/comparison": 15, "fuzz": 15, "collection": 15,
    "unit/detect": 10, "unit/report": 10, "unit/evaluation": 10, "unit/serve": 8, "unit/docs": 8,
}  # fmt: skip


class Seconds(NamedTuple):
    """What tests took: of a clock, and of the processor with that of ended child processes."""

    clock: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        times = os.times()
        return cls(time.perf_counter(), sum(times[:4]))

    def since(self, start: Seconds) -> Seconds:
        return Seconds(self.clock - start.clock, self.cpu - start.cpu)


def folder_of(path: Path) -> str:
    """Return the folder that a test file is counted to: "train", "unit/data"."""
    parts = path.relative_to(TESTS).parts[:-1]
    return "/".join(parts[: 2 if parts[0] == "unit" else 1]) or "."


class FolderSeconds:
    """The plugin."""

    def __init__(self) -> None:
        self.start = Seconds.now()
        self.spent: dict[str, list[Seconds]] = defaultdict(list)

    def pytest_collection_finish(self) -> None:
        self.spent["collection"].append(Seconds.now().since(self.start))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        begin = Seconds.now()
        result = yield
        self.spent[folder_of(item.path)].append(Seconds.now().since(begin))
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if terminalreporter.config.option.durations is None:
            return
        terminalreporter.section("seconds by folder")
        totals = {
            folder: Seconds(*map(sum, zip(*spent, strict=True)))
            for folder, spent in self.spent.items()
        }
        rows = sorted(totals.items(), key=lambda row: -row[1].cpu)
        terminalreporter.write_line(f"{'':<20}{'clock':>7}{'CPU':>7}{'budget':>8}")
        for folder, (clock, cpu) in [*rows, ("all", Seconds.now().since(self.start))]:
            budget = BUDGETS.get(folder, "")
            over = "  over its budget" if budget and cpu > budget else ""
            terminalreporter.write_line(f"{folder:<20}{clock:7.0f}{cpu:7.0f}{budget:>8}{over}")
