"""The task of weights is found before they are read as a whole."""

import pytest

from tests.shared_files import shared_path
from tests.tiny_tasks import write_tiny_classifier, write_tiny_segmenter
from utils.errors import UserError
from utils.state import checkpoint
from utils.tasks.classification import CLASSIFICATION
from utils.tasks.detection import DETECTION
from utils.tasks.of_flags import task_of_flags
from utils.tasks.segmentation import SEGMENTATION


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
