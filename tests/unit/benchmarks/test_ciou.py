"""benchmarks/ciou.py on a few boxes: what it times, and that it compares equal work only."""

import json

import pytest

from benchmarks import ciou


def test_each_case_times_the_plain_and_the_fused_form(monkeypatch, capsys, tmp_path):
    path = tmp_path / "ciou.json"
    flags = f"ciou --device cpu --levels 5 3,4 --repeats 2 --json {path}"
    monkeypatch.setattr("sys.argv", flags.split())
    ciou.main()
    assert "fused: " in capsys.readouterr().out
    timings = json.loads(path.read_text())["timings"]
    assert [(timing["case"], timing["name"]) for timing in timings] == [
        ("5 boxes", "plain"),
        ("5 boxes", "fused"),
        ("3,4 boxes", "plain"),
        ("3,4 boxes", "fused"),
        ("3,4 boxes", "plain, level by level"),
    ]
    assert all(timing["fastest"] > 0 for timing in timings)


def test_other_gradients_end_the_comparison():
    runs = ciou.candidates([5], "cpu")

    def wrong():
        ious, gradients = runs["fused"]()
        return ious, [gradient * 1.01 for gradient in gradients]

    ciou.require_equal(runs)
    with pytest.raises(SystemExit, match="fused finds other numbers"):
        ciou.require_equal({"plain": runs["plain"], "fused": wrong})
