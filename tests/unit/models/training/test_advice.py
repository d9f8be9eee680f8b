"""Advice in the log of a training: a better recipe, missing classes, more epochs; card.md."""

import dataclasses
import errno
import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from duet.models.training import outputs
from duet.models.training.advice import advice_at_end, advice_at_start
from duet.models.training.card import licence_of
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.report.results import read_results
from duet.utils.state.job import Job, TrainData
from duet.utils.strengths import FEW_IMAGES
from tests.small import write_outlined_dataset, write_segmenter_yaml
from tests.train.short_runs import short_flags, start

NAMES = ("circle", "square", "cross\x1b")


def samples_of(*classes, number=1):
    """Return images with an object of each class."""
    index = np.array(classes, np.int64)
    boxes = np.full((len(index), 4), 0.5, np.float32)
    return table_of([Sample(Path("a.jpg"), 64, 64, index, boxes)] * number)


def job_of(*flags, train=(0, 1, 2), val=(0, 1, 2), number=1):
    config = parse_train_flags(list(flags))
    data = TrainData(NAMES, samples_of(*train, number=number), samples_of(*val))
    return Job(config, read_hyperparameters(config.hyp), data)


WEIGHTS = ("--weights", "a.safetensors")


def test_small_dataset_with_weights_gets_recipe_advice():
    (line,) = advice_at_start(job_of(*WEIGHTS, number=292))
    assert line == "292 images: --hyp small usually ends higher"


@pytest.mark.parametrize(
    ("flags", "number"),
    [
        ((), 292),  # was measured with weights only
        ((*WEIGHTS, "--hyp", "hyp.classify.yaml"), 292),
        (WEIGHTS, FEW_IMAGES + 1),
        ((*WEIGHTS, "--hyp", "small"), 292),
        ((*WEIGHTS, "--override", "lr0=0.02"), 292),
    ],
)
def test_recipe_advice_is_limited_to_measured_cases(flags, number):
    assert advice_at_start(job_of(*flags, number=number)) == []


def test_resumed_run_gets_no_recipe_advice():
    job = job_of(*WEIGHTS, val=(0,))
    assert advice_at_start(dataclasses.replace(job, point=SimpleNamespace())) == []


def test_classes_without_objects_are_named_per_split():
    assert advice_at_start(job_of(train=(0, 1), val=(0,))) == [
        r"train has no object of cross\x1b, which cannot be learned",
        r"val has no object of square, cross\x1b, which the metrics leave out",
    ]


def test_many_missing_classes_are_counted():
    data = TrainData(tuple("abcdefgh"), samples_of(*range(8)), samples_of(0))
    job = dataclasses.replace(job_of(), data=data)
    assert "of b, c, d, e, f and 2 more, which" in advice_at_start(job)[0]


def final_advice(*flags, epoch, best, updated=7):
    state = SimpleNamespace(epoch=epoch, best_epoch=best, last_update=updated)
    state.schedule, state.batch_number = SimpleNamespace(accumulate=16), 10
    return advice_at_end(parse_train_flags(list(flags)), state, Path("run/weights/last.x"))


def test_late_best_epoch_suggests_the_command_for_more():
    flags = ("--epochs", "20", "--cfg", "yolov5n", "--img", "64", "--exist-ok", "--seed", "3")
    first, command = final_advice(*flags, epoch=20, best=19)
    assert first == "epoch 19 of 20 was the best: more epochs may help:"
    words = shlex.split(command)
    more = parse_train_flags(words[words.index("--img=64") :])
    assert (more.weights, more.cfg, more.epochs, more.seed) == ("run/weights/last.x", "", 20, 3)
    assert not more.exist_ok


def test_run_without_an_update_explains_why():
    """8 images, 5 epochs and warmup_epochs=0: ten batches of 4, where one update takes 16."""
    (line,) = final_advice("--epochs", "5", "--batch", "4", epoch=5, best=5, updated=-1)
    assert line.startswith("nothing was learned: an update takes 16 batches, and the run had 10;")
    assert line.endswith("give more --epochs, or --override nbs=4")


@pytest.mark.parametrize(
    ("flags", "epoch", "best"),
    [
        (("--epochs", "20"), 20, 18),
        (("--epochs", "9"), 9, 9),  # no tenth
        (("--epochs", "20"), 19, 19),  # stopped early
        (("--epochs", "20", "--noval"), 20, 20),
    ],
)
def test_other_runs_end_without_advice(flags, epoch, best):
    assert final_advice(*flags, epoch=epoch, best=best) == []


def rows_of(folder):
    lines = (folder / "card.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {folder.name}" and lines[2:4] == ["|  |  |", "|---|---|"]
    return dict(line.strip("| ").split(" | ", 1) for line in lines[4:])


def test_training_leaves_a_card_with_recipe_and_metrics(tmp_path):
    folder = start([*short_flags(tmp_path), "--seed", "3", "--override", "lr0=0.02"])
    rows = rows_of(folder)
    assert rows["model"] == "tiny.yaml, task detect" and rows["seed"] == "3"
    assert rows["train images"].startswith("12, SHA-256 ")
    assert rows["classes"] == "circle, square, triangle, star, cross"
    assert "hyp.scratch-low.yaml lr0=0.02, 64 px, batch 4, SGD, 2 of 2 epochs" in rows["recipe"]
    assert rows["licence of the initial weights"] == "none: trained from scratch"
    _, results = read_results(folder / "results.csv")
    best = results[int(rows["best epoch"]) - 1]
    assert float(rows["mAP_0.5:0.95"]) == pytest.approx(best["metrics/mAP_0.5:0.95"], abs=6e-5)
    low, high = map(float, rows["mAP50-95, 95 % interval over images"].split(" to "))
    assert 0 <= low <= high <= 1 and np.isfinite([low, high]).all()


def test_card_is_written_before_the_last_lines(tmp_path, monkeypatch):
    def on_a_full_disk(*lines):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(outputs, "say", on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        start(short_flags(tmp_path))
    assert rows_of(next(tmp_path.rglob("card.md")).parent)["best epoch"]


def test_mask_metrics_have_an_interval(tmp_path):
    flags = ["--data", str(write_outlined_dataset(tmp_path)), *short_flags(tmp_path)[2:]]
    flags += ["--cfg", str(write_segmenter_yaml(tmp_path)), "--epochs", "1"]
    assert "95 % interval" in (start(flags) / "card.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("", "none: trained from scratch"),
        ("yolov5n.pt", "AGPL-3.0 if public weights of YOLOv5"),
        ("a/best.safetensors", "as card.md of its run says"),
    ],
)
def test_licence_follows_from_the_initial_weights(weights, words):
    assert words in licence_of(weights)
