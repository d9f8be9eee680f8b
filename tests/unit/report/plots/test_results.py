"""`plots/results.py`: a run's epochs; the trials of a search; a study."""

import csv

import cv2
import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.report.plots import results
from duet.utils.report.plots.results import (
    StudyRow,
    plot_evolution,
    plot_results,
    plot_study,
    study_sizes,
    write_study,
)
from tests.small import RESULT_COLUMNS
from tests.unit.report.plots.drawn import kept_figures, read_rgb

COLUMNS = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
NUM_VALUES = len(COLUMNS) - 1


def write_results(path, *rows, columns=COLUMNS):
    path.write_text("\n".join([",".join(f"{name:>24}" for name in columns), *rows]) + "\n")
    return path


def test_an_early_spike_leaves_all_other_losses_readable_and_figures_are_shown(
    monkeypatch, tmp_path
):
    kept = kept_figures(monkeypatch, results)
    falling = 0.03 + 0.05 * np.exp(-np.arange(30) / 8)  # 0.08 falls to 0.0313
    falling[1] = 1.6
    rows = [f"{epoch}" + f",{value}" * NUM_VALUES for epoch, value in enumerate(falling)]
    plot_results(write_results(tmp_path / "results.csv", *rows), tmp_path / "results.png")
    # On screen the first epoch is 1; in the file it is 0.
    shown = kept["results.png"].axes[0]
    assert shown.get_xlabel() == "epoch, from 1" and shown.lines[0].get_xdata()[0] == 1
    limits = {axes.get_title(): axes.get_ylim() for axes in kept["results.png"].axes}
    assert 0.01 < limits["Obj loss"][0] < 0.0313 and 0.08 < limits["Obj loss"][1] < 0.3
    assert limits["Precision and recall"][1] > 1.6


@pytest.mark.parametrize("rows", [
    ["0" + "," * NUM_VALUES],
    ["0" + ",nan" * NUM_VALUES, "1" + ",inf" * NUM_VALUES],
    ["0" + ",0.5" * NUM_VALUES, "1,0.4"],
    [f"{epoch}" + f",{value}" * NUM_VALUES
     for epoch, value in enumerate(["-1e308"] * 9 + ["-9e307", "1e308"])],
], ids=["no values", "not finite", "torn last row", "huge"])  # fmt: skip
def test_few_or_missing_values_are_drawn(tmp_path, rows):
    plot_results(write_results(tmp_path / "results.csv", *rows), tmp_path / "results.png")
    assert read_rgb(tmp_path / "results.png").shape[0] > 400


@pytest.mark.parametrize("figures", [[], ["accuracy"], ["a", "b", "c"], ["recall(B)", "mAP(B)"]])
def test_losses_and_figures_of_any_task_have_panels(monkeypatch, tmp_path, figures):
    columns = ["epoch", "train/num_loss", *(f"metrics/{name}" for name in figures), "val/num_loss",
               "x/lr0", "x/lr1", "x/lr2"]  # fmt: skip
    rows = [",".join(str(epoch) for _ in columns) for epoch in range(3)]
    kept = kept_figures(monkeypatch, results)
    path = write_results(tmp_path / "results.csv", *rows, columns=columns)
    plot_results(path, tmp_path / "results.png")
    titles = [axes.get_title() for axes in kept["results.png"].axes if axes.get_visible()]
    pairs = {0: [], 1: ["Accuracy"], 2: ["Recall(B) and mAP(B)"], 3: ["A and b", "C"]}[len(figures)]
    assert titles == ["Num loss", *pairs, "Learning rate"]


def test_results_without_epochs_or_columns_are_refused_by_name(tmp_path):
    empty = write_results(tmp_path / "empty.csv")
    with pytest.raises(UserError, match="empty.csv has no epochs"):
        plot_results(empty, tmp_path / "results.png")
    short = write_results(tmp_path / "short.csv", "0", columns=["epoch", *COLUMNS[2:]])
    with pytest.raises(UserError, match=f"short.csv has no column {COLUMNS[1]}"):
        plot_results(short, tmp_path / "results.png")


def test_each_panel_shows_all_trials_and_marks_the_first_and_the_best(monkeypatch, tmp_path):
    kept = kept_figures(monkeypatch, results)
    values = {"lr0": [0.01, 1e-4, 0.05], "box": [0.05, 0.06, 0.04]}
    plot_evolution(values, [0.2, 0.3, 0.1], tmp_path / "x.png")
    for axes, (name, tried) in zip(kept["x.png"].axes, values.items(), strict=True):
        everything, first, best = (dots.get_offsets().tolist() for dots in axes.collections)
        assert everything == [[tried[0], 0.2], [tried[1], 0.3], [tried[2], 0.1]]
        assert (first, best) == ([[tried[0], 0.2]], [[tried[1], 0.3]])
        assert axes.get_title() == f"{name} {tried[1]:.3g}"
    assert [axes.get_xscale() for axes in kept["x.png"].axes] == ["log", "linear"]
    plot_evolution({f"h{i}": [0.0] for i in range(7)}, [0.0], tmp_path / "x.png")
    shown = [axes.get_visible() for axes in kept["x.png"].axes]
    assert shown == [True] * 7 + [False] * 5


def test_sizes_are_the_public_ones_rounded_up_to_the_stride():
    assert study_sizes(32) == list(range(256, 1537, 128))
    assert study_sizes(128) == study_sizes(32)
    assert study_sizes(192) == [384, 576, 768, 960, 1152, 1344, 1536]


def test_the_table_has_a_row_for_each_model_and_size(tmp_path):
    rows = [
        StudyRow(weights, size, {"mAP_0.5": size / 1000, "mAP_0.5:0.95": size / 2000}, size / 10)
        for weights in ("a.pt", "=猫.pt")
        for size in (256, 384)
    ]
    assert rows[0].line() == "a.pt  256 px  mAP_0.5 0.2560  mAP_0.5:0.95 0.1280  25.6 ms per image"
    write_study(rows, tmp_path)
    with open(tmp_path / "study.csv", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert table[0] == ["weights", "image_size", "mAP_0.5", "mAP_0.5:0.95", "ms_per_image"]
    assert table[1] == ["a.pt", "256", "0.256", "0.128", "25.6"]
    assert [row[:2] for row in table[1:]] == [
        ["a.pt", "256"], ["a.pt", "384"], ["'=猫.pt", "256"], ["'=猫.pt", "384"],
    ]  # fmt: skip
    plot_study(rows, tmp_path)
    assert cv2.imread(str(tmp_path / "study.png")).std() > 0
