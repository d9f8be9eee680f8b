"""val.py as a function."""

import pytest

import val
from duet.utils.report import task_reports


@pytest.fixture
def validate(tmp_path, monkeypatch):
    """Return a function that runs val.py into tmp_path/runs and returns its result."""

    def run(*flags, plots=False):
        if not plots:  # they take most of the time
            for name in ("BOXES", "MASKS", "CLASSES"):
                report = getattr(task_reports, name)._replace(plot=lambda *arguments: None)
                monkeypatch.setattr(task_reports, name, report)
        words = ("--workers", 0, "--device", "cpu", "--project", tmp_path / "runs", "--exist-ok")
        return val.main([str(word) for word in (*words, *flags)])

    return run
