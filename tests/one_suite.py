"""Which suite runs which tests: `make test` runs a suite of each backend, side by side.

A third one, of PyTorch, runs files of OF_TORCH and ONCE while the others wait; `python -m
tests.one_suite` prints them. A whole suite ends with the seconds of each folder beside its budget.
"""

from __future__ import annotations

import functools
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from duet.backend.select import ENVIRONMENT_VARIABLE

# Set by `make test` where both suites run: the folder in which a suite marks the files it takes. If
# it is no folder, the other suite takes all.
CLAIMS = "TESTS_CLAIMS"
# Set for the third suite.
ONCE_ALONE = "TESTS_ONCE_ALONE"
TESTS = Path(__file__).parent
# What needs packages of .venv/torch alone: torch.hub, TorchScript, the figures' Matplotlib. And the
# pages: they train, which takes a third longer on OneFlow. The longest come first.
OF_TORCH = (
    "site/test_copied_pages.py",
    "package/test_wheel.py",
    "export/test_export_command.py",
    "export/examples/test_compiled_and_page.py",
    "unit/docs/test_figures.py",
    "conformance/test_onnx_backend.py",
)
# These use no framework, or start it in processes that any framework serves, or both frameworks.
# The suite that comes to one of them first runs it, after all others: so both end together. The
# longest come first.
ONCE = (
    "parity/test_parity_command.py",
    "parity/test_backends_agree.py",
    "train/test_newcomer.py",
    "export/test_files_as_weights.py",
    "export/test_raw_maps.py",  # files: those of both backends have equal bytes
    "portable/test_no_links.py",
    "train/test_compare_backends.py",
    "train/test_evolve_command.py",
    "train/test_compare_command.py",
    "unit/scripts/test_first_contact.py",
    "unit/scripts/test_public_commands.py",
    "export/test_graph_process.py",
    "site/test_pages.py",
    "site/test_strict_build.py",
    "train/test_audit_command.py",
    "fuzz",
    "unit/serve",
    "unit/benchmarks/test_beside.py",
    "unit/data",
    "unit/detect",
    "unit/export",
    "unit/processes",
    "structure",
    "unit/benchmarks/test_every.py",
    "unit/browser",
    "unit/cli",
    "unit/comparison",
    "unit/docs",
    "unit/evaluation",
    "unit/evolution",
    "unit/files",
    "unit/geometry",
    "unit/page",
    "unit/report",
    "unit/screen",
    "unit/scripts/test_val_masks.py",
    "unit/scripts/test_val_names.py",
    "unit/setup",
    "unit/state",
    "unit/test_tasks.py",
    "unit/test_optional.py",
    "unit/test_wings.py",
    "unit/weights/test_checkpoint.py",
    "unit/weights/test_pickle.py",
)
# But these run in both: their numbers must not depend on the version of NumPy, the Python of each
# environment must be able to import what they do, or they start the framework after all.
IN_BOTH = (
    "distributed/test_public_lines.py",
    "train/test_commands.py",
    "structure/test_importable.py",
    "unit/backend/test_start.py",
    "unit/data/augment/test_golden_draws.py",
    "unit/data/image/test_fingerprint.py",
    "unit/data/loading/test_equal_batches.py",
    "unit/data/masks/test_runs.py",
    "unit/data/records/test_layout.py",
    "unit/evaluation/coco/test_metric.py",
    "unit/evaluation/test_nms.py",
    "unit/export/test_torchscript.py",
    "unit/processes/test_launch.py",
)


def is_left_out(path: Path, environ: Mapping[str, str]) -> bool:
    """Tell whether a test file, or a folder, belongs to another suite."""
    if environ.get(ONCE_ALONE) and path in {TESTS / file for file in IN_BOTH}:
        return True
    own = environ.get(ENVIRONMENT_VARIABLE)
    return own != "torch" and path in {TESTS / file for file in OF_TORCH}


@functools.cache
def place(path: Path) -> int:
    """Return the place of a test file among those that run once; -1 if it runs in each suite."""
    if path in {TESTS / name for name in IN_BOTH}:
        return -1
    parts = {path, *path.parents}
    once = enumerate((*OF_TORCH, *ONCE))
    return next((number for number, name in once if TESTS / name in parts), -1)


class SharedFiles:
    """A plugin of pytest: files that run once come last; each runs where it is claimed first."""

    def __init__(self, claims: Path) -> None:
        self.claims = claims
        self.taken: dict[Path, bool] = {}
        self.left = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: place(item.path))

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Do as pytest itself, but leave out what another suite has taken."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        items = self.own(session.items)
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def own(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        """Yield the tests that run here; a file is claimed when its first test comes next."""
        for item in items:
            if place(item.path) < 0 or self.is_taken(item.path):
                yield item
            else:
                self.left += 1

    def is_taken(self, path: Path) -> bool:
        """Tell whether a file runs here; who asks first takes it."""
        if path not in self.taken:
            # Files of one folder share the syntax trees that they have read.
            own = TESTS / "structure" if path.is_relative_to(TESTS / "structure") else path
            name = own.relative_to(TESTS).as_posix().replace("/", "-")
            try:
                os.close(os.open(self.claims / name, os.O_CREAT | os.O_EXCL))
                self.taken[path] = True
            except (FileExistsError, FileNotFoundError):
                self.taken[path] = False
        return self.taken[path]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{self.left} tests ran in the other suite")


# CPU seconds in one suite, on a core of 2026. A folder above it shows: look at its slowest tests.
BUDGETS = {
    "train": 115, "distributed": 100, "unit/models": 50, "unit/data": 50, "site": 80, "parity": 56,
    "unit/weights": 25, "portable": 56, "package": 28, "export": 30, "unit/scripts": 25,
    "unit/processes": 25, "structure": 25, "conformance": 25, "unit/benchmarks": 20,
    "unit/backend": 15, "unit/export": 15, "unit/comparison": 15, "fuzz": 15, "collection": 8,
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
    """A plugin of pytest: what each folder of tests cost."""

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


if __name__ == "__main__":
    print(*(f"tests/{name}" for name in (*OF_TORCH, *ONCE)))
