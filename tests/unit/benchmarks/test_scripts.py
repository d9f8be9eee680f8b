"""The scripts of benchmarks/ on small inputs: what they time, and that they compare equal work."""

import dataclasses
import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import (
    ciou,
    detect,
    formats,
    loader,
    side_by_side,
    step_table,
    train_step,
    updates,
    val,
)
from benchmarks.serve import Load, running
from duet import backend
from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.errors import WorkerError
from tests.small import (
    CLASS_NAMES,
    write_small_dataset,
    write_small_model,
    write_tiny_model,
    write_tiny_weights,
)

MULTI = "multi_tensor"


def run(monkeypatch, module, tmp_path, *flags):
    """Run a script; return its rows."""
    path = tmp_path / "rows.json"
    words = [module.__name__, *flags, "--device", "cpu", "--json", path]
    monkeypatch.setattr("sys.argv", [*map(str, words)])
    module.main()
    timings = json.loads(path.read_text())["timings"]
    assert all(0 < x["fastest"] <= x["median"] <= x["slowest"] for x in timings)
    return [(x["case"], x["name"]) for x in timings]


def test_candidates_take_turns_after_warming_up(monkeypatch):
    monkeypatch.setattr("benchmarks.side_by_side.milliseconds", lambda run, device: run())
    calls = []

    def candidate(name, times):
        remaining = iter([0.0, *times])
        return lambda: calls.append(name) or next(remaining)

    runs = {"plain": candidate("p", (4.0, 9.0, 5.0)), "fast": candidate("f", (2.0, 1.0, 2.5))}
    plain, fast = side_by_side.time_in_turns("case", runs, "cpu", repeats=3, warm_up=1)
    assert "".join(calls) == "pf" + "pf" * 3
    assert (plain.median, plain.fastest, plain.slowest, plain.ratio) == (5.0, 4.0, 9.0, 1.0)
    assert (fast.median, fast.runs, fast.ratio) == (2.0, 3, pytest.approx(0.4))
    assert (plain.ratio_from, plain.ratio_to, plain.ratio_fastest) == (1.0, 1.0, 1.0)
    # Of 2 / 4, 1 / 9 and 2.5 / 5, halfway between the two lowest and the two highest.
    found = (fast.ratio_from, fast.ratio_to, fast.ratio_fastest)
    assert found == (pytest.approx((1 / 9 + 1 / 2) / 2), 0.5, 0.25)


def test_ciou_is_timed_plain_and_fused(monkeypatch, tmp_path):
    rows = run(monkeypatch, ciou, tmp_path, "--boxes", 5, 7, "--repeats", 1)
    assert rows == [
        ("5 boxes", "plain"),
        ("5 boxes", "fused"),
        ("7 boxes", "plain"),
        ("7 boxes", "fused"),
    ]
    runs = ciou.candidates(5, "cpu")

    def wrong():
        iou, gradient = runs["fused"]()
        return iou, gradient * 1.01

    with pytest.raises(SystemExit, match="fused finds other numbers"):
        ciou.require_equal({"plain": runs["plain"], "fused": wrong})


def test_averages_and_optimizers_are_timed_plain_and_fused(monkeypatch, tmp_path):
    flags = ("--repeats", 1, "--cfg", write_small_model(tmp_path))
    monkeypatch.setattr(updates, "OPTIMIZERS", ("Adam",))
    rows = run(monkeypatch, updates, tmp_path, *flags)
    of_both = [(f"narrow, {what}", how) for what in ("Adam", "EMA") for how in ("plain", MULTI)]
    assert rows == of_both
    with pytest.raises(SystemExit, match="EMA gives other values of x: .* unequal work"):
        updates.require_equal("EMA", {"x": np.ones(2)}, {"x": np.zeros(2)})


def test_train_step_stages_are_timed_for_equal_losses(monkeypatch, capsys, tmp_path):
    flags = ("--cfg", write_small_model(tmp_path), "--img", 64, "--batch", 2, "--warm-up", 1)
    only = ("--only", "channels-last", "padded loss", "compiled, no graphs", "--repeats", 1)
    names = [name for _, name in run(monkeypatch, train_step, tmp_path, *flags, *only)]
    printed = capsys.readouterr().out
    one_layout = "channels-last: left out, one layout only" in printed
    assert names == ["plain", *([] if one_layout else ["channels-last"]), "padded loss"]
    assert "milliseconds a stage, mean" in printed and "backward" in printed
    assert "compiled, no graphs: left out, a CPU has no CUDA graphs" in printed
    losses = {"plain": np.ones(3), "bf16": np.array([1.0, 1.0, 1.1])}
    with pytest.raises(SystemExit, match="unequal work"):
        train_step.require_equal_losses(losses, train_step.CANDIDATES)
    train_step.require_equal_losses({**losses, "bf16": np.full(3, 1.02)}, train_step.CANDIDATES)


def test_loaders_are_compared_on_equal_samples(monkeypatch, tmp_path):
    flags = ("--img", 64, "--batch", 2, "--images", 4, "--repeats", 2)
    names = [name for _, name in run(monkeypatch, loader, tmp_path, *flags)]
    assert names == ["reference", "fast", "fast, --cache ram", "and --device-augment"]
    targets = Targets(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones((1, 4), np.float32))
    index = np.zeros(1, np.int64)
    batch = Batch(np.zeros((1, 3, 8, 8), np.uint8), targets, index, (), index)
    moved = batch._replace(targets=targets._replace(boxes_cxcywh_norm=np.zeros((1, 4), "f4")))
    fewer = batch._replace(targets=targets.take(slice(0, 0)))
    loader.require_equal_samples(batch, batch)
    for other in (moved, fewer, batch._replace(images=batch.images + 5)):
        with pytest.raises(SystemExit, match="unequal work"):
            loader.require_equal_samples(batch, other)


def test_validation_is_timed_both_ways_for_equal_metrics(monkeypatch, tmp_path):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    small = ("--img", 64, "--batch", 4, "--workers", 0, "--repeats", 1)
    rows = run(monkeypatch, val, tmp_path, "--data", data, "--cfg", model, *small)
    case = "validation of 6 images, 64 px, batch 4"
    assert rows == [(case, "plain"), (case, "overlapped")]
    figures = [SimpleNamespace(summary=lambda x=x: {"AP": x}) for x in (0.5, 0.50009, 0.6)]
    val.require_equal_figures(*figures[:2])
    with pytest.raises(SystemExit, match="unequal work"):
        val.require_equal_figures(*figures[1:])


def test_detection_is_timed_beside_the_forward_pass(monkeypatch, tmp_path):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    monkeypatch.setattr(detect, "load_dataset", lambda *_, **__: load_dataset(data))
    source = data.parent / "images" / "val"
    small = ("--img", 64, "--batch", 4, "--repeats", 1, "--cfg", model, "--source", source)
    names = [name for _, name in run(monkeypatch, detect, tmp_path, *small)]
    assert names == ["forward pass alone", "the same, in lanes", "detect --nosave", "detect"]
    flags = SimpleNamespace(weights="", cfg=model, source=str(source), img=64, batch=4, images=5)
    assert sum(len(tensor) for tensor in detect.build(flags, "cpu").batches()) == 5


def test_served_model_uses_the_current_backend(monkeypatch):
    lines = []
    ended = SimpleNamespace(stdout=["error\n"], kill=lambda: None, wait=lambda: None)
    monkeypatch.setattr("subprocess.Popen", lambda line, **_: lines.append(line) or ended)
    flags = SimpleNamespace(weights="W", img=64, device="cpu")
    with pytest.raises(WorkerError, match="ended before it was ready"), running(flags):
        pass
    assert lines[0][lines[0].index("--backend") + 1] == backend.use()


def test_load_report_counts_refused_and_lost_requests_apart():
    load = Load(2.0, [(200, 0.1), (200, 0.3), (429, 0.001), (0, 0.5), (503, 0.1)])
    assert load.rate == 1.0
    assert load.words() == (
        "5 requests in 2.0 s: 2 answered, 1.0 a second; latency median 200 ms, p99 298 ms; "
        "1 refused, 2 lost"
    )


def run_steps(monkeypatch, tmp_path, *flags):
    path = tmp_path / "steps.json"
    words = ["step_table", *flags, "--img", 64, "--batch", 2, "--device", "cpu"]
    monkeypatch.setattr("sys.argv", [*map(str, words), "--repeats", "3", "--json", str(path)])
    step_table.main()
    return json.loads(path.read_text())


def test_step_table_measures_one_row(monkeypatch, tmp_path, capsys):
    model = write_tiny_model(tmp_path)
    only = ("--precision", "float32", "--execution", "eager", "--warm-up", 1)
    document = run_steps(monkeypatch, tmp_path, "--models", model, *only)
    (row,) = document["timings"]
    assert (row["case"], row["name"]) == (f"{model}, 2 x 64 px", "float32, eager")
    found = (row["runs"], row["images"], document["left_out"])
    assert found == (3, 2, [])
    assert 0 < row["fastest"] <= row["median"] <= row["slowest"]
    assert 2**20 < row["peak_bytes"] < 2**40
    assert f"{model}, 2 x 64 px, float32, eager: " in capsys.readouterr().out


def test_step_table_rows_run_apart_and_log_their_failures(monkeypatch, tmp_path):
    """The JSON is complete after each row: it names those that are still to come."""
    so_far, lines = [], []

    def run_cell(line, **_):
        lines.append(line)
        document = json.loads((tmp_path / "steps.json").read_text())
        so_far.append([row["reason"][:11] for row in document["left_out"]])
        model, path = (line[line.index(flag) + 1] for flag in ("--models", "--json"))
        if model == "m":
            return SimpleNamespace(returncode=-6, stderr="first line\nlast line\n")
        left = [{"case": "s", "reason": "out of memory"}] if model == "s" else []
        rows = [] if left else [{"case": "n, 2 x 64 px", "name": "float32, eager", "median": 4.0,
            "fastest": 3.0, "slowest": 5.0, "runs": 3, "ratio": None, "images": 2,
            "peak_bytes": 1}]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"timings": rows, "left_out": left}, file)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(step_table.subprocess, "run", run_cell)
    only = ("--precision", "float32", "--execution", "eager")
    document = run_steps(monkeypatch, tmp_path, "--models", "n", "s", "m", *only)
    assert [row["case"] for row in document["timings"]] == ["n, 2 x 64 px"]
    assert document["left_out"] == [
        {"case": "s, 2 x 64 px, float32, eager", "reason": "out of memory"},
        {"case": "m, 2 x 64 px, float32, eager", "reason": "exit code -6: last line"},
    ]
    assert so_far == [["not reached"] * 3, ["not reached"] * 2, ["out of memo", "not reached"]]
    assert all(line[line.index("--backend") + 1] == backend.use() for line in lines)


@pytest.fixture
def flags(monkeypatch, tmp_path):
    """The flags of one run, of ONNX without half precision."""
    onnx = formats.FORMATS[0]
    assert onnx.name == "onnx"
    row = dataclasses.replace(onnx, flags=tuple(set(onnx.flags) - {"half"}))
    monkeypatch.setattr(formats, "FORMATS", [row])
    data = write_small_dataset(tmp_path, CLASS_NAMES)
    weights = write_tiny_weights(tmp_path, trained_size=64)
    assert len(CLASS_NAMES) == 5
    words = ["formats", "--weights", weights, "--data", data, "--images", 4,
        "--timed", 2, "--threads", 1, 2, "--repeats", 1, "--device", "cpu",
        "--json", tmp_path / "formats.json"]  # fmt: skip
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    return tmp_path


def test_exported_file_is_timed_beside_its_model(flags, capsys, caplog):
    caplog.set_level(logging.INFO)
    formats.main()
    document = json.loads((flags / "formats.json").read_text())
    model, file, rounded = document["rows"]
    assert [(row["name"], row["precision"]) for row in (model, file, rounded)] == [
        ("model", "float32"), ("onnx", "float32"), ("onnx", "int8")
    ]  # fmt: skip
    assert model["map"] == pytest.approx(file["map"], abs=1e-6)
    assert model["largest_difference"] == 0 < file["largest_difference"] < 1e-3
    assert rounded["largest_difference"] > file["largest_difference"]
    assert set(file["milliseconds"]) == {"1", "2"}
    assert "images at 64 px, the training size" in caplog.messages
    medians = {(timing["case"], timing["name"]): timing["median"] for timing in document["timings"]}
    assert medians["2 threads", "onnx float32"] == 2 * file["milliseconds"]["2"]
    heading, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert heading.split()[:2] == ["format", "MB"]
    assert [line.split()[0] for line in lines] == ["model", "onnx", "onnx"]
