"""Which suite runs which tests: `make test` runs a suite of each backend, side by side.

A third one runs files of ONCE while the others wait; `python -m tests.one_suite` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from duet.backend.select import ENVIRONMENT_VARIABLE

# Set by `make test` where both suites run: the folder in which a suite marks the files it takes. If
# it is no folder, the other suite takes all.
CLAIMS = "TESTS_CLAIMS"
# Set for the third suite.
ONCE_ALONE = "TESTS_ONCE_ALONE"
TESTS = Path(__file__).parent
# What needs packages of .venv/torch alone: torch.hub, TorchScript, the figures' Matplotlib.
OF_TORCH = (
    "conformance/test_onnx_backend.py",
    "export/examples/test_compiled_and_page.py",
    "export/test_export_command.py",
    "package/test_wheel.py",
    "unit/docs/test_figures.py",
)
# These use no framework, or start it in processes that any framework serves, or both frameworks.
# The suite that comes to one of them first runs it, after all others: so both end together. The
# longest come first.
ONCE = (
    "parity/test_parity_command.py",
    "site/test_copied_pages.py",  # what they print is stored from PyTorch: any suite compares
    "parity/test_backends_agree.py",
    "train/test_newcomer.py",
    "export/test_files_as_weights.py",
    "portable/test_no_links.py",
    "train/test_compare_backends.py",
    "train/test_evolve_command.py",
    "train/test_compare_command.py",
    "unit/scripts/test_first_contact.py",
    "unit/scripts/test_public_commands.py",
    "unit/scripts/test_onnx_backend.py",
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
    "unit/backend/test_import.py",
    "unit/data/augment/test_golden_draws.py",
    "unit/data/image/test_fingerprint.py",
    "unit/data/loading/test_equal_batches.py",
    "unit/data/masks/test_runs.py",
    "unit/data/records/test_layout.py",
    "unit/data/test_randomness.py",
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


def place(path: Path) -> int:
    """Return the place of a test file in ONCE; -1 if it runs in each suite."""
    parts = {path, *path.parents}
    if parts & {TESTS / name for name in (*IN_BOTH, *OF_TORCH)}:
        return -1
    return next((number for number, name in enumerate(ONCE) if TESTS / name in parts), -1)


class SharedFiles:
    """A plugin of pytest: files of ONCE come last, and each runs where it is claimed first."""

    def __init__(self, claims: Path) -> None:
        self.claims = claims
        self.taken: dict[Path, bool] = {}
        self.left = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: place(item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if place(item.path) < 0:
            return None
        if self.is_taken(item.path):
            # The item before it was torn down for the next one of all, which may not run here.
            item.session._setupstate.teardown_exact(item)
            return None
        self.left += 1
        return True  # without a report

    def is_taken(self, path: Path) -> bool:
        """Tell whether a file runs here; who asks first takes it."""
        if path not in self.taken:
            name = path.relative_to(TESTS).as_posix().replace("/", "-")
            try:
                os.close(os.open(self.claims / name, os.O_CREAT | os.O_EXCL))
                self.taken[path] = True
            except (FileExistsError, FileNotFoundError):
                self.taken[path] = False
        return self.taken[path]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{self.left} tests ran in the other suite")


if __name__ == "__main__":
    print(*(f"tests/{name}" for name in ONCE))
