"""benchmarks/train_step.py: equal losses first, then whole steps and their stages."""

import json

import numpy as np
import pytest

from benchmarks import train_step
from tests.small import write_small_model


def test_candidates_of_equal_losses_are_timed_and_written(monkeypatch, capsys, tmp_path):
    path, cfg = tmp_path / "steps.json", write_small_model(tmp_path)
    flags = f"train_step --device cpu --cfg {cfg} --img 64 --batch 2 --repeats 1 --warm-up 1"
    asked = ["--only", "channels-last", "padded loss", "compiled, no graphs", "--json", str(path)]
    monkeypatch.setattr("sys.argv", [*flags.split(), *asked])
    train_step.main()
    printed = capsys.readouterr().out
    names = [timing["name"] for timing in json.loads(path.read_text())["timings"]]
    if "channels-last: left out, one layout only" in printed:
        assert names == ["plain", "padded loss"]
    else:
        assert names == ["plain", "channels-last", "padded loss"]
    assert "milliseconds a stage, mean" in printed and "backward" in printed
    assert "compiled, no graphs: left out, a CPU has no CUDA graphs" in printed


def test_other_losses_end_the_comparison():
    losses = {"plain": np.ones(3), "bf16": np.array([1.0, 1.0, 1.1])}
    with pytest.raises(SystemExit, match="unequal work"):
        train_step.require_equal_losses(losses, train_step.CANDIDATES)
    train_step.require_equal_losses({**losses, "bf16": np.full(3, 1.02)}, train_step.CANDIDATES)
