"""`plots/results.py`: a spike that hides no other epoch; the trials of a search; a study."""

import csv

import cv2
import numpy as np
import pytest

from tests.small import RESULT_COLUMNS
from tests.unit.report.plots.drawn import kept_figures, read_rgb, texts_of
from utils.colours import COLOURS
from utils.errors import UserError
from utils.report.plots import results
from utils.report.plots.results import (
    StudyRow,
    plot_evolution,
    plot_results,
    plot_study,
    study_sizes,
    upper_limit,
    write_study,
)

COLUMNS = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
NUM_VALUES = len(COLUMNS) - 1


def write_results(path, *rows, columns=COLUMNS):
    path.write_text("\n".join([",".join(f"{name:>24}" for name in columns), *rows]) + "\n")
    return path


def panel_of(monkeypatch, folder, title, columns):
    """The axes of a panel, of a results.csv with these columns (N,) and others that rise."""
    kept = kept_figures(monkeypatch, results)
    num_epochs = len(next(iter(columns.values())))
    table = {name: np.linspace(0, 1, num_epochs) for name in COLUMNS} | columns
    table["epoch"] = range(num_epochs)
    rows = [",".join(str(table[name][epoch]) for name in COLUMNS) for epoch in range(num_epochs)]
    plot_results(write_results(folder / "results.csv", *rows), folder / "results.png")
    (panel,) = (axes for axes in kept["results.png"].axes if axes.get_title() == title)
    return panel


def test_an_early_spike_leaves_all_other_epochs_readable_and_is_marked(monkeypatch, tmp_path):
    losses = 0.03 + 0.05 * np.exp(-np.arange(30) / 8)  # 0.08 falls to 0.0313
    with_spike = losses.copy()
    with_spike[1] = 1.6
    columns = {"train/obj_loss": losses, "val/obj_loss": with_spike}
    panel = panel_of(monkeypatch, tmp_path, "Obj loss", columns)
    lowest, highest = panel.get_ylim()
    assert lowest < losses.min() and losses.max() < highest < 0.09
    assert texts_of(panel.texts) == ["1.6 in epoch 1"]
    (mark,) = [marks for marks in panel.collections if len(marks.get_offsets())]
    np.testing.assert_allclose(mark.get_offsets(), [[1, highest]])
    line_colour = panel.get_lines()[1].get_color()
    assert line_colour == COLOURS[1]
    np.testing.assert_allclose(mark.get_facecolor()[0, :3] * 255,
                               list(bytes.fromhex(line_colour[1:])), atol=0.5)  # fmt: skip


@pytest.mark.parametrize(("values", "limit"), [
    ([], None),
    ([np.nan, np.inf], None),
    ([3.0], None),
    ([3.0, 900.0], None),  # which of them is usual?
    ([1.0] * 10, None),
    ([1.0] * 10 + [50.0], None),  # nothing is flattened
    ([*range(11), 36], None),  # of 12 values the tenth is nine tenths down the list, here 9
    ([*range(11), 37], 10 * 1.05),
    ([np.nan, 137, *range(100, 111)], 100 + 10 * 1.05),
], ids=str)  # fmt: skip
def test_a_panel_ends_above_what_is_at_most_four_times_as_far_up_as_usual(values, limit):
    found = upper_limit(np.array(values, float))
    assert found == (limit if limit is None else pytest.approx(limit))


def test_a_value_between_epochs_without_any_has_a_dot(monkeypatch, tmp_path):
    losses = np.full(30, np.nan)
    losses[[4, 5, 29]] = 0.1
    columns = {"val/box_loss": losses, "train/box_loss": np.linspace(1, 2, 30)}
    panel = panel_of(monkeypatch, tmp_path, "Box loss", columns)
    training, validation = panel.get_lines()
    assert list(validation.get_markevery()) == [29]
    assert list(training.get_markevery()) == []


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
        for weights in ("a.pt", "猫.pt")
        for size in (256, 384)
    ]
    assert rows[0].line() == "a.pt  256 px  mAP_0.5 0.2560  mAP_0.5:0.95 0.1280  25.6 ms per image"
    write_study(rows, tmp_path)
    with open(tmp_path / "study.csv", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert table[0] == ["weights", "image_size", "mAP_0.5", "mAP_0.5:0.95", "ms_per_image"]
    assert table[1] == ["a.pt", "256", "0.256", "0.128", "25.6"]
    assert [row[:2] for row in table[1:]] == [
        ["a.pt", "256"], ["a.pt", "384"], ["猫.pt", "256"], ["猫.pt", "384"],
    ]  # fmt: skip
    plot_study(rows, tmp_path)
    assert cv2.imread(str(tmp_path / "study.png")).std() > 0
