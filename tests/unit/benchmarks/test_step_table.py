"""benchmarks/step_table.py and step_profile.py: rows of steps, and why some have no figure."""

import json
import logging
from types import SimpleNamespace

import pytest

import backend
from backend.device_profile import DeviceProfile, profile_of
from benchmarks import step_profile, step_table
from benchmarks.results import read_scripts
from benchmarks.side_by_side import NotMeasuredError
from benchmarks.step_table import Cell
from tests.small import write_tiny_model


def run(monkeypatch, module, *flags):
    monkeypatch.setattr("sys.argv", [module.__name__, *map(str, flags)])
    module.main()


def small(tmp_path):
    return ("--img", 64, "--batch", 2, "--device", "cpu", "--repeats", 3,
        "--json", tmp_path / "steps.json")  # fmt: skip


def test_one_row_is_measured_here(monkeypatch, tmp_path, capsys):
    model = write_tiny_model(tmp_path)
    only = ("--precision", "float32", "--execution", "eager", "--warm-up", 1)
    run(monkeypatch, step_table, "--models", model, *only, *small(tmp_path))
    (script,) = read_scripts(tmp_path)
    (row,) = script.timings
    assert (row.case, row.name) == (f"{model}, 2 x 64 px", "float32, eager")
    assert (row.runs, row.images, row.host_waits, script.left_out) == (3, 2, None, [])
    assert 0 < row.fastest <= row.median <= row.slowest
    assert 2**20 < row.peak_bytes < 2**40
    assert f"{model}, 2 x 64 px, float32, eager: " in capsys.readouterr().out


def test_rows_are_processes_of_their_own_and_each_failure_has_its_reason(monkeypatch, tmp_path):
    """The JSON is complete after each row: it names those that are still to come."""
    so_far, lines = [], []

    def run_cell(line, **_):
        lines.append(line)
        document = json.loads((tmp_path / "steps.json").read_text())
        so_far.append([row["reason"] for row in document["left_out"]])
        model, path = (line[line.index(flag) + 1] for flag in ("--models", "--json"))
        if model == "m":
            return SimpleNamespace(returncode=-6, stderr="first line\nlast line\n")
        left = [{"case": "s", "reason": "out of memory"}] if model == "s" else []
        rows = [] if left else [{"case": "n, 2 x 64 px", "name": "float32, eager", "median": 4.0,
            "fastest": 3.0, "slowest": 5.0, "runs": 3, "ratio": None, "images": 2,
            "peak_bytes": 1, "host_waits": 0}]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"timings": rows, "left_out": left}, file)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(step_table.subprocess, "run", run_cell)
    only = ("--precision", "float32", "--execution", "eager")
    run(monkeypatch, step_table, "--models", "n", "s", "m", *only, *small(tmp_path))
    (script,) = read_scripts(tmp_path)
    assert [(row.case, row.images) for row in script.timings] == [("n, 2 x 64 px", 2)]
    assert script.left_out == [
        {"case": "s, 2 x 64 px, float32, eager", "reason": "out of memory"},
        {"case": "m, 2 x 64 px, float32, eager", "reason": "exit code -6: last line"},
    ]
    wait = step_table.NOT_REACHED
    assert so_far == [[wait] * 3, [wait] * 2, ["out of memory", wait]]
    assert all(line[line.index("--backend") + 1] == backend.use() for line in lines)


def test_the_table_of_the_page_begins_with_eager_steps():
    flags = SimpleNamespace(models=["n", "s"], batch=[16, 64], img=640,
        precision=["float32", "bfloat16"], execution=["eager", "compiled"])  # fmt: skip
    cells = step_table.cells_of(flags)
    assert len(set(cells)) == 16 and {cell.execution for cell in cells[:8]} == {"eager"}
    assert cells[1] == Cell("n", 16, 640, "bfloat16", "eager")
    assert str(cells[0].cfg) == "models/yolov5n.yaml"


def test_what_backend_or_device_cannot_do_is_no_row(monkeypatch):
    monkeypatch.setattr("backend.amp.supported", lambda device: ("float16",))
    with pytest.raises(NotMeasuredError, match="no bfloat16 with .* on cpu"):
        step_table.build_step(Cell("n", 2, 64, "bfloat16", "eager"), "cpu")
    monkeypatch.setattr("backend.autograd.compile_problem", lambda device: "no compiler")
    with pytest.raises(NotMeasuredError, match="not compiled: no compiler"):
        step_table.build_step(Cell("n", 2, 64, "float32", "compiled"), "cpu")


def steps_that(monkeypatch, act):
    monkeypatch.setattr(step_table, "build_step", lambda cell, device: act)


def test_a_step_that_could_not_be_compiled_is_no_compiled_row(monkeypatch):
    warn = logging.getLogger("backend").warning
    steps_that(monkeypatch, lambda: warn("%s is not compiled: no g++", "Detector"))
    with pytest.raises(NotMeasuredError, match="Detector is not compiled: no g\\+\\+"):
        step_table.measure(Cell("n", 2, 64, "float32", "compiled"), "cpu", 1, 1)
    assert step_table.measure(Cell("n", 2, 64, "float32", "eager"), "cpu", 1, 1).runs == 1


def test_no_memory_is_a_reason_and_a_defect_is_an_error(monkeypatch):
    cell = Cell("n", 2, 64, "float32", "eager")

    def fail(error):
        def step():
            raise error

        steps_that(monkeypatch, step)
        step_table.measure(cell, "cpu", 1, 1)

    with pytest.raises(NotMeasuredError, match="out of memory"):
        fail(RuntimeError("CUDA error: out of memory"))
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        fail(RuntimeError("an illegal memory access"))


def test_steps_are_timed_from_mark_to_mark(monkeypatch):
    """The device marks the end of each step; nothing waits between them."""
    moments = iter([1.0, 3.0, 4.5])
    monkeypatch.setattr("backend.device.mark", lambda device: next(moments))
    monkeypatch.setattr("backend.device.seconds_between", lambda start, end: end - start)
    monkeypatch.setattr("backend.device.synchronize", None)
    assert step_table.seconds_of_steps(lambda: None, "cuda:0", 2) == [2.0, 1.5]


def test_a_profile_is_of_one_step_or_says_why_there_is_none(monkeypatch, tmp_path, capsys):
    model = write_tiny_model(tmp_path)
    run(monkeypatch, step_profile, "--model", model, *small(tmp_path))
    (script,) = read_scripts(tmp_path)
    if not script.profiles:
        assert script.left_out[0]["reason"] == f"{backend.use()} has no profiler of cpu"
        return
    (profile,) = script.profiles
    assert profile["launched"] > 20 and 0 < profile["busy_ms"] <= profile["span_ms"]
    times = [row["milliseconds"] for row in profile["operations"]]
    assert times == sorted(times, reverse=True) and len(times) == step_profile.TOP
    assert "convolution" in " ".join(row["name"] for row in profile["operations"])
    assert "; Python has " in capsys.readouterr().out


def test_a_profile_of_several_steps_is_divided_among_them():
    found = DeviceProfile({"add": 0.002, "conv": 0.03}, 90, 0.03, 0.04)
    profile = step_profile.one_step(Cell("n", 2, 64, "float32", "eager"), found, 2, "cuda:0")
    assert (profile["launched"], profile["busy_ms"], profile["span_ms"]) == (45, 15.0, 20.0)
    assert profile["operations"] == [
        {"name": "conv", "milliseconds": 15.0}, {"name": "add", "milliseconds": 1.0},
    ]  # fmt: skip
    assert step_profile.in_words(profile) == (
        "45 kernels and copies in 20.0 ms; the device idles 25 % of it"
    )


def test_work_that_overlaps_is_counted_once_as_busy():
    # 1 to 3 and 2 to 4 overlap, two lie within, nothing runs from 4 to 6.
    pieces = [(6.0, 7.0), (1.0, 3.0), (2.0, 4.0), (2.5, 3.0), (3.25, 4.0)]
    assert profile_of({"add": 6.25}, pieces) == DeviceProfile({"add": 6.25}, 5, 4.0, 6.0)
    assert profile_of({}, []) == DeviceProfile({}, 0, 0.0, 0.0)


def test_work_of_no_operation_is_told_apart():
    found = profile_of({"add": 1.0}, [(0.0, 1.0), (2.0, 5.0)])  # a second of addition, three more
    assert found.seconds == {"add": 1.0, "(of no operation)": 3.0}
