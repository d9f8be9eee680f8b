"""benchmarks/report.py: one report of a run, made of its JSON alone; goals, and what is missing."""

import dataclasses
import json

import pytest

from benchmarks import __main__ as every
from benchmarks import report
from benchmarks.goals import GOALS, Goal
from benchmarks.results import read_results
from benchmarks.side_by_side import Timing, write_json
from utils.errors import UserError

PLAIN = Timing("10000 boxes", "plain", 4.0, 3.0, 9.0, 5, 1.0, 0.25, 1.0, 1.0, 1.0)
FAST = Timing("10000 boxes", "fused", 1.0, 0.5, 8.0, 5, 0.25, 0.25, 0.2, 0.3, 0.125)
STEP = Timing("n, 16 x 640 px", "float32, eager", 20.0, 19.0, 25.0, 5, float("nan"), 0.0,
    images=16, peak_bytes=3 << 30, host_waits=2)  # fmt: skip
PROFILE = {
    "case": "n, 16 x 640 px, bfloat16, eager", "launched": 700, "kind": "kernels and copies",
    "busy_ms": 15.0, "span_ms": 20.0, "operations": [{"name": "aten::conv", "milliseconds": 9.5}],
}  # fmt: skip


def write_run(folder, *jobs, minutes=10.0):
    document = {"host": "EPYC, 4 cores", "date": "2026-01-02T03:04:05+00:00", "minutes": minutes,
        "load_average": None, "jobs": list(jobs)}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(document))


def section(text, heading):
    """The lines of the cells of a section's tables."""
    lines = text.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]


def test_a_report_is_made_of_the_json_alone(tmp_path, monkeypatch, capsys):
    write_json(tmp_path / "ciou.json", "PyTorch 2, EPYC", [PLAIN, FAST])
    write_json(tmp_path / "step_table.json", "PyTorch 2, EPYC", [STEP], "cuda:0")
    write_json(tmp_path / "step_profile.json", "EPYC", [], "cuda:0", profiles=[PROFILE])
    (tmp_path / "epochs.json").write_text('{"of": "another program"}')
    monkeypatch.setattr("sys.argv", ["report", str(tmp_path)])
    report.main()
    assert capsys.readouterr().out == f"{tmp_path / 'report.md'}\n"
    text = (tmp_path / "report.md").read_text()
    assert section(text, "Times beside a reference")[2:] == [[
        "ciou", "10000 boxes", "plain: 4.00 (3.00 to 9.00)", "fused: 1.00 (0.500 to 8.00)",
        "0.250 (0.200 to 0.300)", "0.125", "0.400 of the reference's time", "0.250",
    ]]  # fmt: skip
    speeds, steps = text.split("Images/s:")[1].split("\n\n")[1:3]
    assert speeds.splitlines()[2] == "| n, 16 x 640 px | 800 |"
    assert steps.splitlines()[2].endswith("| 20.0 | 19.0 to 25.0 | 800 | 3.00 | 2 | 0.000 |")
    assert "700 kernels and copies in 20.0 ms; the device idles 25 % of it." in text
    assert "| aten::conv | 9.50 |" in text
    assert "PyTorch 2, EPYC" in text and "another program" not in text


def test_a_goal_is_reached_missed_or_not_measured(tmp_path):
    write_json(tmp_path / "ciou.json", "EPYC", [PLAIN, FAST])
    slow = dataclasses.replace(FAST, case="yolov5s", name="multi_tensor", ratio=0.251)
    write_json(tmp_path / "ema.json", "EPYC", [dataclasses.replace(PLAIN, case="yolov5s"), slow])
    rows = section(report.markdown(read_results(tmp_path)), "Goals")
    reached = {(row[0], row[2]): (row[4], row[-1]) for row in rows[2:]}
    assert reached["ciou", "fused"] == ("0.250", "yes")
    assert reached["ema", "multi_tensor"] == ("0.251", "no")
    assert reached["detect", "detect"] == ("–", "not measured")
    assert len(reached) == sum(not goal.on_gpu for goal in GOALS)  # no GPU was used


def test_the_worst_row_decides_about_a_goal_and_goals_of_a_gpu_need_one(tmp_path):
    names = ("float32, compiled", "bfloat16, compiled")
    rows = [dataclasses.replace(STEP, name=name, host_waits=n) for n, name in enumerate(names)]
    write_json(tmp_path / "step_table_compiled.json", "H", rows, "cuda:0")
    (script,) = read_results(tmp_path).scripts
    goal = Goal("step_table", "*", "*, compiled", "host_waits", 0, on_gpu=True)
    assert report.goal_row(goal, [script])[4:] == ("1.00", "–", "0.000", "no")
    assert report.goal_row(goal, [dataclasses.replace(script, timings=rows[:1])])[-1] == "yes"
    assert dataclasses.replace(goal, on_gpu=False).rows([script]) == []
    assert dataclasses.replace(goal, figure="ratio").rows([script]) == []  # NaN is no figure


def test_every_goal_is_one_of_a_script_that_one_command_runs():
    assert {goal.script for goal in GOALS} <= set(every.names())


def test_a_goal_names_a_row_as_its_script_does(monkeypatch, tmp_path):
    from benchmarks import ciou

    path = tmp_path / "ciou.json"
    flags = ["--device", "cpu", "--repeats", "1", "--levels", "10000", "3000,3000,3000"]
    monkeypatch.setattr("sys.argv", ["ciou", *flags, "--json", str(path)])
    ciou.main()
    scripts = read_results(tmp_path).scripts
    on_gpu = [dataclasses.replace(script, device="cuda:0") for script in scripts]
    for goal in (goal for goal in GOALS if goal.script == "ciou"):
        assert len(goal.rows(on_gpu if goal.on_gpu else scripts)) == 1


def test_what_has_no_figure_is_named_with_its_reason(tmp_path):
    left = {"case": "m, 64 x 640 px, float32, eager", "reason": "out of memory"}
    write_json(tmp_path / "step_table.json", "H", [STEP], "cuda:0", left_out=[left])
    write_run(tmp_path, {"name": "step_table", "state": "done", "seconds": 3.0},
        {"name": "nms", "state": "failed with exit code 1", "seconds": 1.5},
        {"name": "epoch", "state": "not reached within --minutes 10"})  # fmt: skip
    (tmp_path / "tests.txt").write_text("\n".join(map(str, range(40))))
    text = report.markdown(read_results(tmp_path))
    assert section(text, "Without a figure")[2:] == [
        ["nms", "–", "failed with exit code 1"],
        ["epoch", "–", "not reached within --minutes 10"],
        ["step_table", *left.values()],
    ]
    assert (
        "EPYC, 4 cores, 2026-01-02T03:04:05+00:00" in text and "time limit: --minutes 10." in text
    )
    assert "\n```\n28\n" in text and "\n27\n" not in text  # the end of what pytest printed


def test_what_another_run_measured_is_named_with_its_date(tmp_path):
    """Its figures stay: a job that failed can be run again alone."""
    for name in ("ciou", "ema"):
        write_json(tmp_path / f"{name}.json", "EPYC", [PLAIN, FAST])
    document = json.loads((tmp_path / "ema.json").read_text()) | {"date": "2025-12-01T00:00:00"}
    (tmp_path / "ema.json").write_text(json.dumps(document))
    (tmp_path / "tests.txt").write_text("1 passed")
    told = "Not measured by this run, but earlier or later: "
    assert told not in report.markdown(read_results(tmp_path))  # there is no run
    ciou = {"name": "ciou", "state": "done", "seconds": 3.0}
    write_run(tmp_path, ciou)
    text = report.markdown(read_results(tmp_path))
    assert f"{told}ema: 2025-12-01T00:00:00; tests: at an unknown time.\n" in text
    assert "| ema | 10000 boxes |" in text
    write_run(tmp_path, ciou, *({"name": name, "state": "done"} for name in ("ema", "tests")))
    assert told not in report.markdown(read_results(tmp_path))


def test_a_row_without_its_reference_has_times_and_no_ratio(tmp_path):
    alone = dataclasses.replace(FAST, ratio=float("nan"), ratio_from=None, images=300)
    write_json(tmp_path / "epoch.json", "EPYC", [alone])
    row = section(report.markdown(read_results(tmp_path)), "Times beside a reference")[2]
    assert row[2:5] == ["–", "fused: 1.00 (0.500 to 8.00), 300000 images/s", "–"]


def test_the_reference_need_not_come_first(tmp_path):
    write_json(tmp_path / "metric.json", "EPYC", [FAST, PLAIN])
    (script,) = read_results(tmp_path).scripts
    assert script.compared() == [(PLAIN, FAST)]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("nms.json", "{", "nms.json: "),
        ("nms.json", '{"timings": [{"case": "a"}]}', "timings.name is not as this version"),
        ("nms.json", '{"timings": 3}', "is not as this version"),
        ("run.json", "[]", "run.json: its value is not as this version"),
        ("other.json", '{"a": 1}', "no results there; `python -m benchmarks --output "),
    ],
)
def test_a_folder_without_results_or_with_damaged_ones_is_refused(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=told):
        report.write_report(tmp_path)
    assert not (tmp_path / "report.md").exists()


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(UserError, match="no results there"):
        read_results(tmp_path / "absent")
