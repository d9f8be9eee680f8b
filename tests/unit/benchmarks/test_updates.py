"""Benchmarks of EMA, optimizer, upsampling and folding: each compares equal work, or refuses."""

import json

import numpy as np
import pytest

from backend import nn, ops
from benchmarks import ema, folding, optimizer, upsample
from tests.small import write_small_model


def run(benchmark, monkeypatch, tmp_path, *flags):
    """The (case, candidate) rows that a benchmark writes."""
    path = tmp_path / "table.json"
    command = [benchmark.__name__, "--device", "cpu", "--repeats", 1, "--json", path, *flags]
    monkeypatch.setattr("sys.argv", [str(part) for part in command])
    benchmark.main()
    timings = json.loads(path.read_text())["timings"]
    assert all(timing["fastest"] > 0 for timing in timings)
    return [(timing["case"], timing["name"]) for timing in timings]


def test_the_average_is_timed_three_ways(monkeypatch, tmp_path):
    rows = run(ema, monkeypatch, tmp_path, "--cfg", write_small_model(tmp_path))
    names = ("loop, collected anew", "plain", "multi_tensor")
    assert rows == [("narrow", name) for name in names]


def test_each_optimizer_is_timed_both_ways(monkeypatch, tmp_path):
    rows = run(optimizer, monkeypatch, tmp_path, "--cfg", write_small_model(tmp_path))
    assert [name for _, name in rows] == ["plain", "multi_tensor"] * 3
    assert [case for case, _ in rows[::2]] == [f"narrow, {name}" for name in optimizer.OPTIMIZERS]


def test_doubling_is_timed_in_both_orders_of_memory(monkeypatch, tmp_path):
    rows = run(upsample, monkeypatch, tmp_path, "--img", 64, "--batch", 1, "--channels", 4)
    assert len(rows) == 2 * 2 * 2 * 2
    assert [name for _, name in rows] == ["framework", "chosen"] * 8


def test_other_averages_end_the_comparison():
    modules = {name: nn.Conv2d(1, 1, 1) for name in ("one", "other")}
    with pytest.raises(SystemExit, match="unequal work"):
        ema.require_equal_averages({}, modules)


def test_other_maps_end_the_comparison():
    maps = np.arange(8.0).reshape(1, 2, 2, 2)
    right, wrong = (
        upsample.Doubling(function, maps, upsample.ORDERS[0], "cpu")
        for function in (ops.upsample_nearest_2x, lambda x: ops.upsample_nearest_2x(x) * 2.0)
    )
    upsample.require_equal(right, right)
    with pytest.raises(SystemExit, match="unequal work"):
        upsample.require_equal(right, wrong)


def test_a_folded_model_is_timed_beside_the_plain_one(monkeypatch, tmp_path):
    rows = run(folding, monkeypatch, tmp_path, "--cfg", write_small_model(tmp_path), "--img", 64)
    assert rows == [("1 x 64 px", "plain"), ("1 x 64 px", "folded")]
