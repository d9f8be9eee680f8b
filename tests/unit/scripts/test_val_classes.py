"""val.py with a classifier, and with data of another task."""

from __future__ import annotations

import cv2
import pytest

import val
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights
from utils.errors import UserError


@pytest.fixture
def validate(tmp_path, monkeypatch, capsys):
    """Return what validates weights on an image of each class, and returns what is printed."""
    for number, name in enumerate(CLASS_NAMES):
        path = tmp_path / "data" / "val" / name / f"{number}.png"
        path.parent.mkdir(parents=True)
        cv2.imwrite(str(path), noise(40, 48, seed=number))

    def run(weights, *flags) -> str:
        line = ("--weights", weights, "--data", tmp_path / "data", "--workers", 0, "--device",
                "cpu", "--project", tmp_path, *flags)  # fmt: skip
        monkeypatch.setattr("sys.argv", ["val.py", *map(str, line)])
        val.main()
        return capsys.readouterr().out

    return run


def test_a_detector_is_not_scored_on_class_folders(validate, tmp_path):
    with pytest.raises(UserError, match="folders named for their classes.*--task classify"):
        validate(write_tiny_weights(tmp_path), "--img", 64)
