"""The anchors that the check compares objects with."""

import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.data.check.anchors import anchors_of, read_anchors
from utils.errors import UserError

# Of YOLOv5 at 640, published with its architecture.
PUBLIC = [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198),
          (373, 326)]  # fmt: skip


def test_without_a_model_they_are_those_of_yolov5s():
    assert read_anchors("", "").tolist() == [list(map(float, pair)) for pair in PUBLIC]


def test_a_model_yaml_comes_before_weights_and_these_before_the_default(tmp_path):
    weights = str(shared_path("weights/coco-yolov5n-v6.pt"))
    assert read_anchors("", weights) == pytest.approx(np.array(PUBLIC), rel=2e-3)  # half precision
    cfg = tmp_path / "m.yaml"
    cfg.write_text("anchors: [[1, 2], [3, 4, 5, 6]]\n")
    assert read_anchors(str(cfg), weights).tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    "anchors", [None, 3, "auto", [], [[]], [1, 2], {"a": 1}, [["a", "b"]], [[1, [2]]]]
)
def test_a_model_that_lists_none_has_none(anchors):
    assert anchors_of({"anchors": anchors}).shape == (0, 2)


def test_a_model_that_is_not_there_is_a_users_mistake():
    with pytest.raises(UserError, match="--cfg no_such"):
        read_anchors("no_such", "")
    with pytest.raises(UserError, match="--weights no/such.pt: no such file"):
        read_anchors("", "no/such.pt")
