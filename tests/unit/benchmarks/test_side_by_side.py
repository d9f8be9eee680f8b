"""benchmarks/side_by_side.py: candidates take turns, and the ratio is that of the medians."""

import json

import numpy as np
import pytest

from backend import ops
from benchmarks import ciou, gradients, loader, nms, optimizer, side_by_side, upsample
from tests.small import write_small_model
from utils.data.loading.batch import Batch, Targets


def test_candidates_take_turns_after_warming_up(monkeypatch):
    monkeypatch.setattr("backend.device.milliseconds", lambda run, device: run())
    calls = []

    def candidate(name, times):
        remaining = iter([0.0, *times])
        return lambda: calls.append(name) or next(remaining)

    runs = {"plain": candidate("p", (4.0, 9.0, 5.0)), "fast": candidate("f", (2.0, 1.0, 2.5))}
    plain, fast = side_by_side.time_in_turns("case", runs, "cpu", repeats=3, warm_up=1)
    assert "".join(calls) == "pf" + "pf" * 3
    assert (plain.median, plain.fastest, plain.slowest, plain.ratio) == (5.0, 4.0, 9.0, 1.0)
    assert (fast.median, fast.runs, fast.ratio) == (2.0, 3, pytest.approx(0.4))
    assert (plain.ratio_from, plain.ratio_to) == (1.0, 1.0)
    assert (plain.ratio_fastest, fast.ratio_fastest) == (1.0, 0.25)
    # Of 2 / 4, 1 / 9 and 2.5 / 5, halfway between the two lowest and the two highest.
    assert (fast.ratio_from, fast.ratio_to) == (pytest.approx((1 / 9 + 1 / 2) / 2), 0.5)


def test_the_middle_half_of_one_turn_is_that_turn():
    assert side_by_side.middle_half([0.7]) == (0.7, 0.7)


def test_the_table_is_printed_and_written(monkeypatch, capsys, tmp_path):
    path = tmp_path / "nms.json"
    flags = f"nms --device cpu --candidates 200 --repeats 2 --json {path}"
    monkeypatch.setattr("sys.argv", flags.split())
    nms.main()
    document = json.loads(path.read_text())
    assert document["machine"] in capsys.readouterr().out
    assert [timing["name"] for timing in document["timings"]] == ["reference", "sorted"] * 5 + [
        "one by one",
        "together",
    ]
    assert all(timing["fastest"] > 0 for timing in document["timings"])


def test_the_loader_is_compared_on_the_same_samples(monkeypatch, capsys):
    flags = "loader --img 64 --batch 2 --images 4 --repeats 2"
    monkeypatch.setattr("sys.argv", flags.split())
    loader.main()
    printed = capsys.readouterr().out
    for name in ("reference", "fast", "fast, --cache ram"):
        assert f"\n{name}: " in printed
    assert "1.00 x the reference" in printed


def test_other_samples_end_the_comparison_of_loaders():
    targets = Targets(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones((1, 4), np.float32))
    index = np.zeros(1, np.int64)
    batch = Batch(np.zeros((1, 3, 8, 8), np.uint8), targets, index, (), index)
    loader.require_equal_samples(batch, batch)
    moved = batch._replace(targets=targets._replace(boxes_cxcywh_norm=np.zeros((1, 4), "f4")))
    fewer = batch._replace(targets=targets.take(slice(0, 0)))
    for other in (moved, fewer, batch._replace(images=batch.images + 5)):
        with pytest.raises(SystemExit, match="unequal work"):
            loader.require_equal_samples(batch, other)


def test_unequal_rows_end_the_comparison():
    with pytest.raises(SystemExit, match="unequal work"):
        nms.require_equal_rows({"one": lambda: [1, 2], "other": lambda: [2, 1]})


@pytest.mark.parametrize("second", [[1, 2.1], [1, float("nan")]])
def test_other_tensors_end_the_comparison(second):
    """Of two tensors, the second one is wrong; the tolerance is relative to its largest value."""
    wanted, close, wrong = (
        [ops.tensor(np.float32([9])), ops.tensor(np.float32(x))]
        for x in ([1, 2], [1, 2.01], second)
    )
    side_by_side.require_equal_tensors("maps", wanted, close, 0.01)
    with pytest.raises(SystemExit, match="maps differ by .*unequal work"):
        side_by_side.require_equal_tensors("maps", wanted, wrong, 0.01)


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        (ciou, "--levels 10 20"), (gradients, "--batch 1"), (nms, "--candidates 20"),
        (optimizer, ""), (upsample, "--batch 1 --img 64 --channels 4"),
    ],
)  # fmt: skip
def test_a_script_that_is_ended_keeps_the_cases_before(monkeypatch, tmp_path, script, flags):
    """It is killed, by `--minutes` or by a person, so that it writes nothing at its end."""
    path, done = tmp_path / "rows.json", []

    def time_one(case, *_, **__):
        if done:
            raise KeyboardInterrupt
        done.append(side_by_side.Timing(case, "plain", 2.0, 1.0, 3.0, 1, 1.0))
        return done

    monkeypatch.setattr(script, "time_in_turns", time_one)
    command = f"{script.__name__} --device cpu --repeats 1 --json {path} {flags}"
    if script is optimizer:
        command += f" --cfg {write_small_model(tmp_path)}"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(KeyboardInterrupt):
        script.main()
    (row,) = json.loads(path.read_text())["timings"]
    assert row["case"] == done[0].case
