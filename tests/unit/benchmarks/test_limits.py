"""benchmarks/limits.py: what a machine can do at most, and which part of it a step reaches."""

from __future__ import annotations

import json
import re

import pytest

from backend import device
from benchmarks import limits
from tests.small import write_small_model


def test_rate_operations_and_share_agree(monkeypatch, tmp_path, capsys):
    flags = ("--img", 64, "--batch", 2, "--repeats", 1, "--device", "cpu")
    path = tmp_path / "limits.json"
    words = ("limits", *flags, "--cfg", write_small_model(tmp_path), "--json", path)
    monkeypatch.setattr(limits, "CHANNELS", 16)
    monkeypatch.setattr("sys.argv", [*map(str, words)])
    limits.main()
    text = capsys.readouterr().out
    assert float(re.search(r"copies: (.*) GB/s", text)[1]) > 0
    assert re.findall(r"^\w+:", text, re.MULTILINE)[-2:] == ["float32:", "bfloat16:"]
    limit, step, *_ = json.loads(path.read_text())["timings"]
    assert limit["case"] == step["case"] == "narrow, 2 x 64 px, float32"
    assert step["ratio"] == pytest.approx(step["median"] / limit["median"])
    told = re.search(r"float32: .* at that rate (\d+): (\d+) % of it", text)
    assert int(told[1]) == round(limit["median"])
    assert int(told[2]) == round(100 * limit["median"] / step["median"])  # of one run


def test_the_best_rate_is_that_of_exact_float32_as_the_steps_are(monkeypatch):
    calls = []
    monkeypatch.setattr(
        device, "compute_exactly", lambda where: calls.append(f"exact {where}"), raising=False
    )
    monkeypatch.setattr(limits, "convolution_rate", lambda *_: calls.append("rate") or 1e12)
    monkeypatch.setattr(limits, "copy_rate", lambda *_: 1e9)
    monkeypatch.setattr(limits, "step_seconds", lambda *_: ([1.0], 1e9))
    monkeypatch.setattr("sys.argv", ["limits", "--device", "cpu"])
    limits.main()
    assert calls[:2] == ["exact cpu", "rate"]  # a GPU would round to TF32, and steps do not


def test_a_convolution_counts_two_operations_a_product(monkeypatch):
    monkeypatch.setattr(limits, "fastest", lambda *_: 1.0)
    taps = 3 * 3 * limits.CHANNELS
    results = limits.IMAGES * limits.SIDE**2 * limits.CHANNELS
    assert limits.convolution_rate("float32", "cpu", 1) == 2 * taps * results


def test_the_fastest_of_several_runs_counts(monkeypatch):
    times = iter([30.0, 20.0, 40.0])
    monkeypatch.setattr(device, "milliseconds", lambda run, device: next(times), raising=False)
    assert limits.fastest(lambda: None, "cpu", 3) == pytest.approx(0.02)
