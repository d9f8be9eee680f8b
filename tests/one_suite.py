"""Tests that run in only one of the two suites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from duet.backend.select import ENVIRONMENT_VARIABLE

SIDE_BY_SIDE = "TESTS_SIDE_BY_SIDE"  # set by `make test` where both suites run
TESTS = Path(__file__).parent
# These start the backends that they judge in processes of their own, or run exported files, which
# are the same from both; the site has no backend. What the last one needs is in .venv/torch.
OF_BOTH = {
    "oneflow": (
        "export/examples/test_page_example.py",
        "parity/test_backends_agree.py",
        "unit/data/test_environments.py",
    ),
    "torch": (
        "export/examples/test_cpp_example.py",
        "conformance/test_onnx_backend.py",
        "parity/test_parity_command.py",
        "train/test_compare_backends.py",
        "site/test_pages.py",
        "site/test_strict_build.py",
    ),
}
# These use no framework, or start it in processes that any framework serves, and nothing in which
# the two versions of NumPy differ; they are shared out so that both suites end together. Decoding,
# augmentation, records and caches run in both.
OF_NONE = {
    "oneflow": (
        "train/test_compare_command.py",
        "train/test_evolve_command.py",
        "unit/comparison",
        "unit/data/audit",
        "unit/data/check",
        "unit/detect",
        "unit/evolution",
        "unit/files",
        "unit/processes",
        "unit/report",
        "unit/screen",
        "unit/serve/test_life.py",
        "unit/weights/test_limits.py",
        "unit/weights/test_pickle.py",
    ),
    "torch": (
        "fuzz",
        "structure/test_imports.py",
        "structure/test_one_suite.py",
        "structure/test_one_way.py",
        "unit/benchmarks/test_beside.py",
        "unit/benchmarks/test_every.py",
        "unit/browser",
        "unit/data/anchors",
        "unit/data/fetch",
        "unit/data/formats",
        "unit/data/sources",
        "unit/export",
        "unit/page",
        "unit/setup",
        "unit/state/test_folder.py",
    ),
}


def left_out(environ: Mapping[str, str], chosen: bool) -> set[Path]:
    """Return the test files that this process leaves to the other suite.

    Args:
        environ: names the backend, and tells whether the other suite runs at the same time.
        chosen: whether the user has asked for some of the tests. Then all of OF_NONE run here too.
    """
    tables = [OF_BOTH]
    if environ.get(SIDE_BY_SIDE) and not chosen:
        tables.append(OF_NONE)
    return {
        TESTS / path
        for table in tables
        for backend, paths in table.items()
        for path in paths
        if backend != environ.get(ENVIRONMENT_VARIABLE)
    }
