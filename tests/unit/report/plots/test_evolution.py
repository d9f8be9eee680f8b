"""The figure of a search: a panel a hyper-parameter."""

import pytest

from utils.report.plots import evolution
from utils.report.plots.evolution import plot_evolution


@pytest.fixture
def figures(monkeypatch):
    """The figures that would be written."""
    kept = []
    monkeypatch.setattr(evolution, "save_figure", lambda figure, path: kept.append(figure))
    return kept


def test_each_panel_shows_all_trials_and_marks_the_first_and_the_best(figures, tmp_path):
    values = {"lr0": [0.01, 1e-4, 0.05], "box": [0.05, 0.06, 0.04]}
    plot_evolution(values, [0.2, 0.3, 0.1], tmp_path / "x.png")
    for axes, (name, tried) in zip(figures[0].axes, values.items(), strict=True):
        everything, first, best = (dots.get_offsets().tolist() for dots in axes.collections)
        assert everything == [[tried[0], 0.2], [tried[1], 0.3], [tried[2], 0.1]]
        assert (first, best) == ([[tried[0], 0.2]], [[tried[1], 0.3]])
        assert axes.get_title() == f"{name} {tried[1]:.3g}"
    assert [axes.get_xscale() for axes in figures[0].axes] == ["log", "linear"]


def test_panels_of_the_last_row_that_nothing_is_in_are_hidden(figures, tmp_path):
    plot_evolution({f"h{i}": [0.0] for i in range(7)}, [0.0], tmp_path / "x.png")
    shown = [axes.get_visible() for axes in figures[0].axes]
    assert shown == [True] * 7 + [False] * 5


def test_the_figure_is_written(tmp_path):
    plot_evolution({"lr0": [0.01, 0.02]}, [0.1, 0.2], tmp_path / "evolve.png")
    assert (tmp_path / "evolve.png").read_bytes()[:4] == b"\x89PNG"
