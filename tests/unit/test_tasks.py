"""The table of tasks; and a model of one task becomes one of another."""

import dataclasses

import numpy as np
import pytest

import duet.models.graph  # noqa: F401  registers all heads
from duet.models.blocks.registry import find_block
from duet.models.graph import parse_model, plan_layers
from duet.utils.cli import task_flags
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.task_flags import adopted, check_flags, find_task, without_effect
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.image.decoding import Objects, SourceImage
from duet.utils.data.masks.runs import runs_of_mask
from duet.utils.data.randomness import sample_generator
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import read_model
from duet.utils.geometry.boxes import Polygons, starts_of
from duet.utils.geometry.detections import (
    Classification,
    Detections,
    GroundTruth,
    Ragged,
    Segmentations,
)
from duet.utils.strengths import STRENGTHS, AugmentConfig
from duet.utils.tasks import (
    ANCHOR_FREE,
    CLASSIFICATION,
    CLASSIFIER_HYPERPARAMETERS,
    DETECTION,
    SEGMENTATION,
    TASKS,
)
from duet.utils.weights import checkpoint
from tests.environments import shared_path
from tests.small import noise, write_tiny_classifier, write_tiny_segmenter

PARTS = ("items", "view", "report", "result", "exported", "annotations", "legacy")


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_parts_named_by_a_task_exist(task):
    named = {name: getattr(task, name) for name in PARTS}
    lacking = {name for name, reference in named.items() if not reference}
    assert lacking == ({"annotations", "legacy"} if "annotations" in task.refused_by_val else set())
    assert all(reference.load() for reference in named.values() if reference)
    assert find_block(task.head).kind.task is task


def test_task_comes_from_flag_then_model_then_weights():
    _, masks = read_model("yolov5n-seg.yaml")
    assert find_task("", "yolov5n-seg.yaml", {}) is SEGMENTATION
    assert find_task("", "yolov5n.yaml", masks) is DETECTION
    assert find_task("segment", "", {}) is SEGMENTATION
    assert find_task("detect", "", masks) is DETECTION
    assert find_task("", "", masks) is SEGMENTATION
    assert find_task("", "", {}) is DETECTION
    assert find_task("detect", "yolov5n-seg.yaml", {}) is DETECTION  # with the layers of that


@pytest.mark.parametrize("flags", [["--mask-ratio", "2"], ["--no-overlap"]])
def test_mask_flags_are_refused_for_detection(flags):
    config = parse_train_flags(flags)
    check_flags(SEGMENTATION, config)
    with pytest.raises(UserError, match=f"{flags[0]} applies only to the task segment.* to"):
        check_flags(DETECTION, config)


def test_default_flags_are_accepted_by_all_tasks():
    for task in TASKS.values():
        config = parse_train_flags([])
        check_flags(task, type(config)(**task.completed(vars(config), ())))


@pytest.mark.parametrize("ratio", ["0", "-1", "33", "4.5"])
def test_impossible_mask_ratio_is_refused(ratio):
    with pytest.raises(UserError, match=f"--mask-ratio {ratio}; accepted: "):
        parse_train_flags(["--mask-ratio", ratio])


def task_of_flags(weights, task=""):
    values = {"task": task, "cfg": "", "weights": str(weights)}
    return task_flags.task_of_flags(values)


def test_task_is_read_from_our_files_without_arrays(tmp_path, monkeypatch):
    segmenter, classifier = write_tiny_segmenter(tmp_path), write_tiny_classifier(tmp_path)
    monkeypatch.setattr(checkpoint, "_read_array", None)
    assert task_of_flags(segmenter) is SEGMENTATION
    assert task_of_flags(classifier) is CLASSIFICATION
    assert task_of_flags(segmenter, task="detect") is DETECTION


def test_task_is_read_from_a_foreign_file():
    assert task_of_flags(shared_path("golden/checkpoints/cls.pt")) is CLASSIFICATION


@pytest.mark.parametrize("size", [0, 7, 300])
def test_truncated_file_is_refused(size, tmp_path):
    path = write_tiny_segmenter(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match="--weights"):
        task_of_flags(path)
    with pytest.raises(UserError, match="no such file"):
        task_of_flags(tmp_path / "none.safetensors")


def test_idle_hyperparameters_are_reported_when_set():
    words = ["mosaic=1", "translate=0.1", "dfl=2", "scale=0.4", "box=0.1", "fl_gamma=1.5",
             "anchors=3", "cls=0", "lr0=0.1", "hsv_h=0.1"]  # fmt: skip
    hyp = read_hyperparameters(CLASSIFIER_HYPERPARAMETERS, words)
    assert without_effect(DETECTION, hyp) == ["dfl"]
    assert without_effect(CLASSIFICATION, hyp) == [
        "box", "cls", "dfl", "fl_gamma", "anchors", "translate", "mosaic",
    ]  # fmt: skip


def test_default_hyperparameters_of_a_task_are_not_idle():
    for task in TASKS.values():
        hyp = read_hyperparameters(task.defaults.get("hyp", "hyp.scratch-low.yaml"))
        assert without_effect(task, hyp) == []
    assert read_hyperparameters(CLASSIFIER_HYPERPARAMETERS).scale == 0.5


SQUARE = np.zeros((20, 20), bool)
SQUARE[2:12, 2:12] = True
BOX = np.float32([[2, 2, 12, 12]])
SHIFTED = Ragged.of([runs_of_mask(np.roll(SQUARE, 2, axis=1))], np.uint32)  # IoU 2/3
RUNS = Ragged.of([runs_of_mask(SQUARE)], np.uint32)
ONE, ZERO = np.ones(1, np.float32), np.zeros(1, np.int64)
FOUND = {
    "detect": Detections(BOX + np.float32(1), ONE, ZERO),  # IoU 81/119
    "detect-anchor-free": Detections(BOX + np.float32(1), ONE, ZERO),
    "segment": Segmentations(BOX, ONE, ZERO, SHIFTED),
    "classify": Classification(np.float32([[0.7, 0.3]])),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_fitness_is_a_weighted_sum_of_head_metrics(task):
    head = find_block(task.head).kind
    evaluator = task.exported.load().head(head, 2).make_evaluator(("a", "b"))
    evaluator.add(0, FOUND[task.name], GroundTruth(ZERO, BOX, masks=RUNS))
    result = evaluator.result()
    figures = head.metrics(result)
    assert figures.keys() == head.metric_names.keys()
    weighed = sum(weight * figures[name] for name, weight in task.fitness.items())
    assert head.fitness(result) == pytest.approx(weighed) and weighed > 0


SIZE, SAMPLES = 64, 6
FRAME = np.array([[4.0, 8.0, 20.0, 30.0]])
OUTLINE = Polygons(FRAME[0, [0, 1, 2, 1, 2, 3]].reshape(-1, 2), starts_of(np.array([3])))
PIXELS = noise(SIZE, SIZE)
OBJECTS = Objects(np.zeros(1, np.int64), FRAME, OUTLINE)
SOURCE = SourceImage((SIZE, SIZE), OBJECTS, (SIZE, SIZE), lambda: PIXELS)
PLAIN = AugmentConfig(mosaic=1)  # copies and mixtures are of mosaics


def changed(strength):
    """PLAIN with another value of a strength."""
    value = {"mosaic": 0.0, "perspective": 0.001}.get(strength, 1.0)
    return dataclasses.replace(PLAIN, **{strength: value})


def images(task, config):
    """The first training images of a task, as bytes, and their boxes."""
    items, made = TASKS[task].items.load(), []
    for index in range(SAMPLES):
        drawn = items.draw(config, sample_generator(0, 0, index), index, 100)
        item = items.make(drawn, [SOURCE] * len(drawn.samples), SIZE, (SIZE, SIZE))
        made.append((item.image.tobytes(), item.boxes_xyxy.tolist()))
    return made


@pytest.mark.parametrize("task", TASKS)
def test_declared_idle_strengths_change_no_image(task):
    plain = images(task, PLAIN)
    idle = {name for name in STRENGTHS if images(task, changed(name)) == plain}
    assert idle == set(STRENGTHS) & set(TASKS[task].unused)


@pytest.mark.parametrize("task", TASKS)
def test_each_idle_strength_is_reported_when_set(task):
    usual = read_hyperparameters(TASKS[task].defaults.get("hyp", DEFAULT_HYPERPARAMETERS))
    for name in STRENGTHS:
        value = 0.0005 if name == "perspective" else 0.123
        named = without_effect(TASKS[task], dataclasses.replace(usual, **{name: value}))
        assert named == [name] * (name in TASKS[task].unused)


def document(name):
    return read_model(f"models/{name}.yaml")[1]


def layers(model):
    return [*model["backbone"], *model["head"]]


@pytest.mark.parametrize("size", "nsmlx")
def test_classifier_from_detector_equals_the_public_one(size):
    made = adopted(CLASSIFICATION, document(f"yolov5{size}"))
    public = document(f"yolov5{size}-cls")
    assert layers(made) == layers(public) and "anchors" not in made
    for name in ("depth_multiple", "width_multiple"):
        assert made[name] == public[name]


@pytest.mark.parametrize("size", "nsmlx")
def test_segmenter_from_detector_is_public_and_reversible(size):
    detector, segmenter = document(f"yolov5{size}"), document(f"yolov5{size}-seg")
    assert adopted(SEGMENTATION, detector) == {**segmenter, "nc": detector["nc"]}
    assert adopted(DETECTION, segmenter) == {**detector, "nc": segmenter["nc"]}


@pytest.mark.parametrize("task", [DETECTION, SEGMENTATION, ANCHOR_FREE])
def test_classifier_has_no_layers_for_boxes(task):
    with pytest.raises(UserError, match=f"--task {task.name}: the model has no .* {task.model}"):
        adopted(task, document("yolov5n-cls"))


def test_model_of_the_task_stays_unchanged():
    for task, name in ((DETECTION, "yolov5n"), (CLASSIFICATION, "yolov5n-cls")):
        assert adopted(task, document(name)) is document(name) or (
            adopted(task, document(name)) == document(name)
        )


CUT = [
    ("yolov5n", 5), ("yolov5n", 25), ("hub/yolov5n6", 0), ("hub/yolov3-tiny", 12),
    ("yolov5n-cls", 4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cutoff"), CUT)
def test_cutoff_sets_the_classifier_layer_count(name, cutoff):
    detector = document(name)
    made = adopted(CLASSIFICATION, detector, cutoff)
    number = cutoff or len(detector["backbone"])
    assert len(layers(made)) == number
    assert layers(made)[:-1] == layers(detector)[: number - 1]
    assert len(plan_layers(parse_model(made, 7))) == number


@pytest.mark.parametrize("cutoff", [1, 26, 1000])
def test_cutoff_beyond_the_layers_is_refused(cutoff):
    with pytest.raises(UserError, match="accepted: a number from 2 to 25"):
        adopted(CLASSIFICATION, document("yolov5n"), cutoff)
