"""A model of one task becomes one of another: the layers that both have stay as they are."""

import pytest

from duet.models.graph import parse_model, plan_layers
from duet.utils.errors import UserError
from duet.utils.model_yamls import read_model
from duet.utils.tasks.find import adopted
from duet.utils.tasks.table import ANCHOR_FREE, CLASSIFICATION, DETECTION, SEGMENTATION


def document(name):
    return read_model(f"models/{name}.yaml")[1]


def layers(model):
    return [*model["backbone"], *model["head"]]


@pytest.mark.parametrize("size", "nsmlx")
def test_a_classifier_of_a_detector_is_the_public_classifier(size):
    made = adopted(CLASSIFICATION, document(f"yolov5{size}"))
    public = document(f"yolov5{size}-cls")
    assert layers(made) == layers(public) and "anchors" not in made
    for name in ("depth_multiple", "width_multiple"):
        assert made[name] == public[name]


@pytest.mark.parametrize("size", "nsmlx")
def test_a_segmenter_of_a_detector_is_the_public_segmenter_and_back(size):
    detector, segmenter = document(f"yolov5{size}"), document(f"yolov5{size}-seg")
    assert adopted(SEGMENTATION, detector) == {**segmenter, "nc": detector["nc"]}
    assert adopted(DETECTION, segmenter) == {**detector, "nc": segmenter["nc"]}


@pytest.mark.parametrize("task", [DETECTION, SEGMENTATION, ANCHOR_FREE])
def test_a_classifier_has_no_layers_for_boxes(task):
    with pytest.raises(UserError, match=f"--task {task.name}: the model has no .* {task.model}"):
        adopted(task, document("yolov5n-cls"))


def test_a_model_of_the_task_stays_as_it_is():
    for task, name in ((DETECTION, "yolov5n"), (CLASSIFICATION, "yolov5n-cls")):
        assert adopted(task, document(name)) is document(name) or (
            adopted(task, document(name)) == document(name)
        )


CUT = [
    ("yolov5n", 5), ("yolov5n", 25), ("hub/yolov5n6", 0), ("hub/yolov3-tiny", 12),
    ("yolov5n-cls", 4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cutoff"), CUT)
def test_cutoff_is_how_many_layers_the_classifier_has(name, cutoff):
    detector = document(name)
    made = adopted(CLASSIFICATION, detector, cutoff)
    number = cutoff or len(detector["backbone"])
    assert len(layers(made)) == number
    assert layers(made)[:-1] == layers(detector)[: number - 1]
    assert len(plan_layers(parse_model(made, 7))) == number


@pytest.mark.parametrize("cutoff", [1, 26, 1000])
def test_a_cutoff_beyond_the_layers_is_refused(cutoff):
    with pytest.raises(UserError, match="accepted: a number from 2 to 25"):
        adopted(CLASSIFICATION, document("yolov5n"), cutoff)
