"""Plots of a run's epochs and of a search's trials; fonts, colours and files of all plots."""

import pytest

from duet.utils.report.plots import results
from duet.utils.report.plots.results import plot_evolution, plot_results
from duet.utils.report.results import Results
from tests.small import RESULT_COLUMNS
from tests.unit.report.conftest import kept_figures, read_rgb

COLUMNS = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
NUM_VALUES = len(COLUMNS) - 1


def make_results(*rows, columns=COLUMNS):
    return Results(columns, [row.split(",") for row in rows])


@pytest.mark.parametrize("rows", [
    ["0" + "," * NUM_VALUES],
    ["0" + ",nan" * NUM_VALUES, "1" + ",inf" * NUM_VALUES],
    [f"{epoch}" + f",{value}" * NUM_VALUES
     for epoch, value in enumerate(["-3e38"] * 9 + ["-2e38", "3e38"])],
], ids=["no values", "not finite", "huge"])  # fmt: skip
def test_few_or_missing_values_are_drawn(tmp_path, rows):
    plot_results(make_results(*rows), tmp_path / "results.png")
    assert read_rgb(tmp_path / "results.png").shape[0] > 400


@pytest.mark.parametrize("figures", [[], ["accuracy"], ["a", "b", "c"], ["recall(B)", "mAP(B)"]])
def test_losses_and_metrics_of_any_task_have_panels(monkeypatch, tmp_path, figures):
    columns = ["epoch", "train/num_loss", *(f"metrics/{name}" for name in figures), "val/num_loss",
               "x/lr0", "x/lr1", "x/lr2"]  # fmt: skip
    rows = [",".join(str(epoch) for _ in columns) for epoch in range(3)]
    kept = kept_figures(monkeypatch, results)
    plot_results(make_results(*rows, columns=columns), tmp_path / "results.png")
    titles = [axes.get_title() for axes in kept["results.png"].axes if axes.get_visible()]
    pairs = {0: [], 1: ["Accuracy"], 2: ["Recall(B) and mAP(B)"], 3: ["A and b", "C"]}[len(figures)]
    assert titles == ["Num loss", *pairs, "Learning rate"]


def test_evolution_panels_mark_first_and_best_trials(monkeypatch, tmp_path):
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
