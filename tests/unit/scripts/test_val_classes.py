"""val.py with a classifier, and with data of another task."""

from __future__ import annotations

import cv2
import pytest

import val
from duet.utils.errors import UserError
from tests.tiny_tasks import write_tiny_classifier
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights


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


@pytest.mark.parametrize("mode", ["val", "speed"])
def test_a_threshold_that_is_given_is_refused_for_a_classifier(validate, tmp_path, mode):
    with pytest.raises(UserError, match="--iou: classifiers predict no boxes; leave it out"):
        validate(write_tiny_classifier(tmp_path), "--task", mode, "--iou", 0.5)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--square", "classification images are always square"),
        ("--single-cls", "a classifier with one class has nothing to distinguish"),
    ],
)
def test_flags_that_mean_nothing_to_a_classifier_are_refused(validate, tmp_path, flag, reason):
    data = tmp_path / "data.yaml"
    data.write_text("train: images\nval: images\nnames: [a, b]\n")
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    cv2.imwrite(str(tmp_path / "images" / "0.png"), noise(40, 48))
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 1 1\n")
    flags = ("--data", data) if flag == "--single-cls" else ()
    with pytest.raises(UserError, match=f"{flag}: {reason}"):
        validate(write_tiny_classifier(tmp_path), flag, *flags)
