"""Each task is trained, validated, suspended and resumed by the same code, with its own flags."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.evaluation import validation
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_model, transfer_weights
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.task_flags import adopted, task_of_model
from duet.utils.cli.train_config import TrainConfig, read_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import ALONE
from duet.utils.tasks import ANCHOR_FREE, DETECTION, TASKS
from duet.utils.weights.checkpoint import load_checkpoint
from duet.utils.weights.load import load_weights
from tests.environments import shared_path
from tests.small import (
    COLOURS,
    untrained,
    write_class_folders,
    write_classifier_yaml,
    write_outlined_dataset,
    write_segmenter_yaml,
    write_small_dataset,
    write_tiny_anchor_free,
)
from tests.train.short_runs import StopAt, assert_equal_runs, rows, short_flags, start

BOXES = ("precision", "recall", "mAP_0.5", "mAP_0.5:0.95")


class Case(NamedTuple):
    """A task: its data, its model and what stands in its results."""

    write_data: object
    write_model: object
    flags: str
    losses: tuple[str, ...]  # as results.csv calls them
    figures: tuple[str, ...]


CASES = {
    "segment": Case(
        write_outlined_dataset, write_segmenter_yaml, "--img 64 --noautoanchor",
        ("box", "seg", "obj", "cls"), tuple(f"{name}({of})" for of in "BM" for name in BOXES),
    ),
    "detect-anchor-free": Case(
        write_small_dataset, write_tiny_anchor_free, "--img 64", ("box", "cls", "dfl"), BOXES
    ),
    "classify": Case(
        write_class_folders, write_classifier_yaml, "--img 32 --dropout 0.4",
        ("cls",), ("accuracy_top1", "accuracy_top5"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The flags of a task's trainings, and the folder of one without interruption."""
    made = {}

    def of_task(name):
        if name not in made:
            case, folder = CASES[name], tmp_path_factory.mktemp(name)
            inputs = {"data": case.write_data(folder), "cfg": case.write_model(folder)}
            flags = short_flags(folder, *case.flags.split(), **inputs)
            made[name] = flags, start([*flags, "--name", "whole"])
        return made[name]

    return of_task


def losses_of(folder):
    return np.array(json.loads((folder / "work.json").read_text())["losses"])


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_columns_of_the_task(inputs, name):
    (_, whole), case = inputs(name), CASES[name]
    table = rows(whole)
    losses = [f"{part}/{loss}_loss" for part in ("train", "val") for loss in case.losses]
    figures = [f"metrics/{figure}" for figure in case.figures]
    columns = [*losses[: len(case.losses)], *figures, *losses[len(case.losses) :]]
    assert len(table) == 2
    assert list(table[0]) == ["epoch", *columns, "x/lr0", "x/lr1", "x/lr2"]
    assert all(float(row[loss]) > 0 for row in table for loss in losses)
    assert losses_of(whole).shape == (6, len(case.losses)) and (losses_of(whole) > 0).all()


@pytest.mark.parametrize("name", CASES)
def test_stopped_run_ends_like_the_uninterrupted_one(inputs, name, tmp_path):
    flags, whole = inputs(name)
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(4))  # in the validation
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("segment", "--multi_tensor_optimizer --micro-batch 1 --multi-scale --single-cls"),
        ("segment",
         "--no-overlap --mask-ratio 2 --freeze 2 --label-smoothing 0.1 --bbox_iou_optim"),
        ("detect-anchor-free",
         "--multi_tensor_optimizer --micro-batch 1 --multi-scale --single-cls"),
        ("detect-anchor-free", "--freeze 2 --bbox_iou_optim --override dfl=1.0"),
    ],
)  # fmt: skip
def test_task_trains_with_recipe_flags(inputs, tmp_path, name, recipe):
    flags, _ = inputs(name)
    folder = start([*flags, "--project", str(tmp_path), "--epochs", "1", *recipe.split()])
    losses = losses_of(folder)
    assert losses.shape == (3, len(CASES[name].losses)) and np.isfinite(losses).all()
    assert (losses[:, :3] > 0).all()


@pytest.mark.parametrize("name", CASES)
def test_small_recipe_fine_tunes_and_resumes(inputs, tmp_path, name):
    flags, whole = inputs(name)
    weights = str(whole / "weights" / "last.safetensors")
    flags = [*flags, "--hyp", "small", "--override", "nbs=4", "--weights", weights]
    small = start([*flags, "--project", str(tmp_path), "--name", "small"])
    assert json.loads((small / "work.json").read_text())["work"]["optimizer_steps"] == 6  # batches
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(4))
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", small)


@pytest.mark.parametrize(
    ("name", "flag", "message"),
    [
        ("detect-anchor-free", "--noautoanchor", "anchor-free models have no anchors; leave it"),
        (
            "detect-anchor-free",
            "--label-smoothing=0.1",
            "anchor-free models train class scores on box quality",
        ),
        ("classify", "--rect", "classification images are always square"),
        ("classify", "--noautoanchor", "classifiers have no anchors"),
        ("classify", "--bbox_iou_optim", "the classification loss has no boxes"),
        ("classify", "--dropout=1", "accepted: a number from 0 to below 1"),
        ("classify", "--cutoff=9", "the model has 3 layers"),
        ("classify", "--mask-ratio=2", "applies only to the task segment"),
    ],
)
def test_meaningless_flags_are_refused_with_the_reason(inputs, tmp_path, name, flag, message):
    flags, _ = inputs(name)
    with pytest.raises(UserError, match=f"{flag.partition('=')[0]}.*{message}"):
        start([*flags, "--project", str(tmp_path), flag])


def remapped(inputs, tmp_path, name, how="--remap-classes"):
    """The EMA of weights, and of what becomes of them for one class by an epoch of no rate."""
    flags, whole = inputs(name)
    weights = whole / "weights" / "last.safetensors"
    start([*flags, "--weights", str(weights), *how.split(), "--single-cls", "--epochs", "1",
           "--project", str(tmp_path), "--override", "lr0=1e-9", "warmup_bias_lr=0"])  # fmt: skip
    found = load_checkpoint(tmp_path / "exp" / "weights" / "last.safetensors").ema
    return load_checkpoint(weights).ema, found


@pytest.mark.parametrize("how", ["--remap-classes", "--hyp small"])
def test_mask_coefficients_transfer_to_other_classes(inputs, tmp_path, how):
    given, found = remapped(inputs, tmp_path, "segment", how)
    for level in (0, 1):
        name = f"model.4.m.{level}.weight"
        own, old = (x[name].reshape(3, -1, 16) for x in (found, given))
        assert own.shape[1:] == (12, 16) and old.shape[1:] == (16, 16)
        np.testing.assert_allclose(own[:, :5], old[:, :5], rtol=0, atol=1e-6)
        np.testing.assert_allclose(own[:, 6:], old[:, 10:], rtol=0, atol=1e-6)


def test_box_branches_transfer_to_other_classes(inputs, tmp_path):
    given, found = remapped(inputs, tmp_path, "detect-anchor-free")
    for level in (0, 1):
        boxes, classes = (f"model.4.{branch}.{level}.2.weight" for branch in ("cv2", "cv3"))
        assert (len(found[boxes]), len(found[classes])) == (64, 1)
        np.testing.assert_allclose(found[boxes], given[boxes], rtol=0, atol=1e-6)


def test_anchor_based_weights_give_anchor_free_backbone(caplog):
    weights = load_weights(shared_path("weights/coco-yolov5n-v6.pt"))
    model = Detector(read_model_yaml("yolov5nu.yaml", 3))
    with caplog.at_level("INFO", "train"):
        transfer_weights(model, weights, ("a", "b", "c"), keep_anchors=True)
    assert "transferred 342/427 tensors" in caplog.text  # all but the head's


def test_task_decides_the_head_of_given_layers():
    free, anchored = (read_model_yaml(f"yolov5n{end}.yaml").document for end in ("u", ""))
    assert task_of_model(free) is ANCHOR_FREE
    assert adopted(ANCHOR_FREE, anchored) == free
    with pytest.raises(UserError, match="the model has no anchors; add --cfg"):
        adopted(DETECTION, free)


def test_defaults_follow_the_task(inputs):
    _, whole = inputs("classify")
    header = load_checkpoint(whole / "weights" / "best.safetensors").header
    settings = header.settings
    assert (settings["optimizer"], settings["label_smoothing"]) == ("Adam", 0.1)
    assert (header.hyperparameters["lr0"], header.hyperparameters["weight_decay"]) == (1e-3, 5e-5)
    config = TrainConfig(**TASKS["classify"].completed(*read_train_flags([])))
    assert (config.image_size, config.batch_size) == (224, 64)
    best = max(float(row["metrics/accuracy_top1"]) for row in rows(whole))
    assert header.best_fitness == pytest.approx(best, abs=1e-5)  # six digits in the file
    assert header.class_names == COLOURS


def test_classifiers_are_validated_with_table_and_plots(inputs, tmp_path, capsys):
    flags, whole = inputs("classify")
    weights = whole / "weights" / "last.safetensors"
    for name, extra in (("plain", []), ("twice", ["--augment"])):
        config = parse_val_flags([
            "--data", flags[1], "--weights", str(weights), "--img", "32", "--batch-size", "4",
            "--device", "cpu", "--workers", "0", "--project", str(tmp_path), "--name", name, *extra,
        ])  # fmt: skip
        dataset = load_dataset(config.data)
        samples = load_split(dataset, "val")
        loaded = [load_weights(weights)]
        validation.run_validation(config, dataset, samples, loaded, ALONE)
        reported = capsys.readouterr().out
        assert [line.split()[0] for line in reported.splitlines()[:2]] == ["class", "all"]
        assert (tmp_path / name / "confusion_matrix.png").exists()


def test_detector_weights_give_a_classifier_its_backbone(inputs, tmp_path, caplog):
    detector = shared_path("weights/coco-yolov5n-v6.pt")
    with caplog.at_level("INFO"):
        folder = start([
            *inputs("classify")[0], "--cfg", "", "--weights", str(detector), "--task", "classify",
            "--epochs", "1", "--project", str(tmp_path), "--img", "64",
        ])  # fmt: skip
    lines = [record.message for record in caplog.records]
    # 186 tensors of layers 0 to 8; the head's are 8.
    (reported,) = (line for line in lines if "transferred" in line)
    assert reported.startswith("transferred 186/194 tensors; the weights were trained on other cl")
    header = load_checkpoint(folder / "weights" / "last.safetensors").header
    assert header.model["head"] == [[-1, 1, "Classify", ["nc"]]] and header.model["nc"] == 3


def test_classifier_weights_give_a_detector_its_backbone():
    classifier = Detector(read_model_yaml("models/yolov5n-cls.yaml", 3))
    classifier.initialize(seed=1)
    arrays = nn.state_arrays(classifier)
    weights = untrained(classifier, COLOURS)
    values = read_train_flags(["--weights", "F", "--cfg", "yolov5n.yaml"])[0]
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    model = build_model(TrainConfig(**values), hyp, weights, ("a", "b"))
    assert model.head.task is DETECTION and len(model.spec.layers) == 25
    found = nn.state_arrays(model)
    for name, array in arrays.items():
        if not name.startswith("model.9."):
            np.testing.assert_array_equal(found[name], array)
