"""card.md: what the weights of a run were made from, and how good they are."""

import numpy as np
import pytest

from duet.models.training.card import licence_of
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.report.results import read_results
from tests.small import write_outlined_dataset, write_tiny_segmenter
from tests.train.short_runs import short_flags, start


def rows_of(folder):
    lines = (folder / "card.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {folder.name}" and lines[2:4] == ["|  |  |", "|---|---|"]
    return dict(line.strip("| ").split(" | ", 1) for line in lines[4:])


def test_a_training_leaves_a_card_with_its_data_recipe_and_metrics(tmp_path):
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


def test_masks_have_an_interval_too(tmp_path):
    flags = ["--data", str(write_outlined_dataset(tmp_path)), *short_flags(tmp_path)[2:]]
    flags += ["--cfg", str(write_tiny_segmenter(tmp_path)), "--epochs", "1"]
    assert "95 % interval" in (start(flags) / "card.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "none: trained from scratch"),
        (["--weights", "yolov5n.pt"], "AGPL-3.0 if public weights of YOLOv5"),
        (["--weights", "a/best.safetensors"], "as card.md of its run says"),
    ],
)
def test_the_licence_follows_from_the_initial_weights(flags, words):
    assert words in licence_of(parse_train_flags(flags))
