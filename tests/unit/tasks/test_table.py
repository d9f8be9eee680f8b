"""Which task flags and weights mean, and flags that mean nothing to a task."""

import pytest

from tests.shared_files import shared_path
from tests.tiny_tasks import write_tiny_classifier, write_tiny_segmenter
from utils.cli.train_config import TASK_NAMES, parse_train_flags
from utils.errors import UserError
from utils.model_yamls import read_model
from utils.tasks.classification import CLASSIFICATION
from utils.tasks.detection import DETECTION
from utils.tasks.segmentation import SEGMENTATION
from utils.tasks.table import TASKS, check_flags, find_task, task_of_flags
from utils.weights import checkpoint


def test_tasks_are_those_of_the_flag():
    assert tuple(TASKS) == TASK_NAMES


def test_the_flag_decides_and_then_the_model_and_then_the_weights():
    _, masks = read_model("yolov5n-seg.yaml")
    assert find_task("", "yolov5n-seg.yaml", {}) is SEGMENTATION
    assert find_task("", "yolov5n.yaml", masks) is DETECTION
    assert find_task("segment", "", {}) is SEGMENTATION
    assert find_task("detect", "", masks) is DETECTION
    assert find_task("", "", masks) is SEGMENTATION
    assert find_task("", "", {}) is DETECTION
    assert find_task("detect", "yolov5n-seg.yaml", {}) is DETECTION  # with the layers of that


@pytest.mark.parametrize("flags", [["--mask-ratio", "2"], ["--no-overlap"]])
def test_flags_of_masks_are_refused_where_there_are_none(flags):
    config = parse_train_flags(flags)
    check_flags(SEGMENTATION, config)
    with pytest.raises(UserError, match=f"{flags[0]} is for models to segment.* to detect; leave"):
        check_flags(DETECTION, config)


def test_the_defaults_of_all_flags_are_accepted_by_all_tasks():
    for task in TASKS.values():
        config = parse_train_flags([])
        check_flags(task, type(config)(**task.completed(vars(config), ())))


@pytest.mark.parametrize("ratio", ["0", "-1", "33", "4.5"])
def test_a_ratio_of_masks_that_leaves_none_is_refused(ratio, capsys):
    with pytest.raises((UserError, SystemExit)):
        parse_train_flags(["--mask-ratio", ratio])


def values(weights, task="", cfg=""):
    return {"task": task, "cfg": cfg, "weights": str(weights)}


def test_of_our_own_files_no_array_is_read(tmp_path, monkeypatch):
    segmenter, classifier = write_tiny_segmenter(tmp_path), write_tiny_classifier(tmp_path)
    monkeypatch.setattr(checkpoint, "_read_array", None)
    assert task_of_flags(values(segmenter)) is SEGMENTATION
    assert task_of_flags(values(classifier)) is CLASSIFICATION
    assert task_of_flags(values(segmenter, task="detect")) is DETECTION


def test_a_foreign_file_tells_its_task_too():
    assert task_of_flags(values(shared_path("golden/checkpoints/cls.pt"))) is CLASSIFICATION


@pytest.mark.parametrize("size", [0, 7, 300])
def test_a_file_that_is_cut_off_is_refused(size, tmp_path):
    path = write_tiny_segmenter(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match="--weights"):
        task_of_flags(values(path))
    with pytest.raises(UserError, match="no such file"):
        task_of_flags(values(tmp_path / "none.safetensors"))
