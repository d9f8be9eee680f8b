"""A model of one task becomes one of another: the layers that both have stay as they are."""

import pytest

from duet.models.graph import parse_model, plan_layers
from duet.utils.errors import UserError
from duet.utils.model_yamls import read_model
from duet.utils.tasks.find import adopted
from duet.utils.tasks.table import CLASSIFICATION, DETECTION, SEGMENTATION


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


@pytest.mark.parametrize("size", "nsmlx")
@pytest.mark.parametrize(("task", "suffix"), [(DETECTION, ""), (SEGMENTATION, "-seg")])
def test_a_classifier_gets_the_layers_of_the_public_model_of_its_size(size, task, suffix):
    classifier = document(f"yolov5{size}-cls")
    made, public = adopted(task, classifier), document(f"yolov5{size}{suffix}")
    assert made == {**public, "nc": classifier["nc"]}


# As public -cls.pt files tell: channels and repeats of YOLOv5s, without multiples.
LINES_OF_S = [
    [-1, 1, "Conv", [32, 6, 2, 2]], [-1, 1, "Conv", [64, 3, 2]], [-1, 1, "C3", [64]],
    [-1, 1, "Conv", [128, 3, 2]], [-1, 2, "C3", [128]], [-1, 1, "Conv", [256, 3, 2]],
    [-1, 3, "C3", [256]], [-1, 1, "Conv", [512, 3, 2]], [-1, 1, "C3", [512]],
]  # fmt: skip


def test_a_classifier_of_scaled_layers_gets_those_of_the_public_model():
    classifier = {
        "nc": 3, "depth_multiple": 1.0, "width_multiple": 1.0, "backbone": LINES_OF_S,
        "head": [[-1, 1, "Classify", ["nc"]]],
    }  # fmt: skip
    assert adopted(DETECTION, classifier) == {**document("yolov5s"), "nc": 3}
    assert adopted(SEGMENTATION, classifier) == {**document("yolov5s-seg"), "nc": 3}
    wider = [[-1, 1, "Conv", [40, 6, 2, 2]], *LINES_OF_S[1:]]
    with pytest.raises(UserError, match="match no public detector; .* --cfg yolov5n.yaml"):
        adopted(DETECTION, {**classifier, "backbone": wider})


def test_a_classifier_of_no_public_backbone_needs_a_model_yaml():
    classifier = {**document("yolov5n-cls"), "width_multiple": 0.3}
    with pytest.raises(UserError, match="give a model with --cfg"):
        adopted(DETECTION, classifier)


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
