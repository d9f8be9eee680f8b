"""python -m benchmarks, its report, and the table of two recipes; trainings are played."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as every
from benchmarks import card, report, side_by_side, small_data
from benchmarks.side_by_side import Timing, write_json
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.project import PROJECT


def run_every(monkeypatch, *flags, ended=None):
    """The commands that one command runs; `ended` has the exit codes of jobs, of others it is 0."""
    lines = {}

    def run_within(line, environment, seconds):
        name = Path(line[-1]).stem
        lines[name] = (line, environment, seconds)
        row = side_by_side.Timing("case", "name", 2.0, 1.0, 3.0, 1, 1.0)
        side_by_side.write_json(Path(line[-1]), "machine", [row])
        return (ended or {}).get(name, 0)

    monkeypatch.setattr(every, "run_within", run_within)
    monkeypatch.setattr("sys.argv", ["benchmarks", *map(str, flags)])
    with pytest.raises(SystemExit) as end:
        every.main()
    return lines, end.value.code


def test_every_runs_all_scripts_and_names_the_failed_ones(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "bench"
    ended = {"ciou": 1, "val": None}
    lines, code = run_every(monkeypatch, "--device", "cpu", "--output", folder, ended=ended)
    assert code == 1
    printed = capsys.readouterr().out
    assert printed.endswith(f"report in {folder / 'report.md'}\nciou: failed with exit code 1\n"
                            "val: ended by --minutes\n")  # fmt: skip
    assert "| ciou | failed with exit code 1 | " in (folder / "report.md").read_text()
    assert list(lines) == list(every.JOBS)
    for name, (line, environment, seconds) in lines.items():
        assert line[:3] == [sys.executable, "-m", f"benchmarks.{name}"]
        assert ("OMP_NUM_THREADS", "1") in environment.items() or name != "loader"
        assert seconds == float("inf")


def test_benchmark_scripts_import_without_a_backend():
    names = [f"benchmarks.{path.stem}" for path in sorted(Path(PROJECT, "benchmarks").glob("*.py"))]
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, stderr=subprocess.PIPE)
    assert (len(names) > 10, done.returncode, done.stderr) == (True, 0, b"")


def test_card_reports_one_table_within_its_time_limit(monkeypatch, tmp_path, capsys):
    lines = {}

    def run_within(line, environment, seconds):
        assert 0 < seconds <= 600
        script, path = line[2].removeprefix("benchmarks."), Path(line[line.index("--json") + 1])
        lines[script] = " ".join(line)
        rows = [Timing("case", name, 50.0, 40.0, 60.0, 2, 1.0, images=4)
                for name in ("forward pass alone", "detect", "overlapped")]  # fmt: skip
        write_json(path, "machine", rows)
        if script == "beside":
            sides = {"torch": [{"epochs": [{"seconds": 2.0}]}], "other": [{"epochs": []}]}
            path.write_text(json.dumps({"runs": sides}))
        return {"detect": 1, "val": None}.get(script, 0)  # None: stopped by --minutes

    spent = {"seconds/epoch": 4.0, "seconds/data_wait": 1.0, "seconds/validation": 0.2}
    monkeypatch.setattr(card, "run_within", run_within)
    monkeypatch.setattr(card, "train", lambda command: [{}, spent])
    path = tmp_path / "card.json"
    words = ["card", "--device", "cpu", "--other", "python a.py", "--json", str(path)]
    monkeypatch.setattr("sys.argv", words)
    card.main()
    rows = [(x["case"], x["name"], x["images"]) for x in json.loads(path.read_text())["timings"]]
    assert rows == [
        *(("case", name, 4) for name in ("forward pass alone", "detect", "overlapped")),
        ("an epoch of train.py", "25% waiting for images, 5% validation", 12),
        ("an epoch of both trainers", "torch", 12),
        *(("case", name, 4) for name in ("detect", "overlapped") * 2),
    ]
    ended = [line for line in capsys.readouterr().out.splitlines() if "not finished: " in line]
    assert ["detect" in ended[0], "benchmarks.val" in ended[1], len(ended)] == [True, True, 2]
    assert "--models n nu" in lines["step_table"] and "--execution eager" in lines["step_table"]
    assert "--other python a.py" in lines["beside"] and "photographs.yaml" in lines["val"]


def test_busy_share_ignores_idle_time_before_and_after_work(tmp_path):
    samples = tmp_path / "samples"
    samples.write_text("0\n[N/A]\n0\n80\n0\n100\n0\n")
    assert card.busy_share(samples) == ", GPU 60% busy"
    samples.write_text("0\n0\n")
    assert card.busy_share(samples) == card.busy_share(tmp_path / "none") == ""


def test_card_refuses_zero_minutes(monkeypatch):
    monkeypatch.setattr("sys.argv", ["card", "--device", "cpu", "--minutes", "0"])
    with pytest.raises(UserError, match="--minutes 0.0; a number above 0 is needed"):
        card.main()


def test_benchmark_photographs_form_a_trainable_dataset(tmp_path):
    data = load_dataset(str(card.write_photographs(tmp_path, 12)))
    samples = {split: load_split(data, split) for split in ("train", "val")}
    assert {split: len(found) for split, found in samples.items()} == {"train": 12, "val": 1}
    assert len(data.class_names) == 80
    assert all(sample.image_path.stat().st_size > 50_000 for sample in samples["train"])
    assert sum(len(sample.class_index) for sample in samples["train"]) > 12


def test_job_over_its_time_limit_is_ended_with_its_children(tmp_path):
    child = "import time; time.sleep(100)"
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}]); "
    code += f"open({str(tmp_path / 'out')!r}, 'w').write(str(p.pid)); p.wait()"
    assert every.run_within([sys.executable, "-c", code], dict(os.environ), 1.0) is None
    assert not Path(f"/proc/{int((tmp_path / 'out').read_text())}").exists()
    done = every.run_within([sys.executable, "-c", "exit(3)"], dict(os.environ), float("inf"))
    assert done == 3


PLAIN = Timing("10000 boxes", "plain", 4.0, 3.0, 9.0, 5, 1.0, 0.25, 1.0, 1.0, 1.0)
FAST = Timing("10000 boxes", "fused", 1.0, 0.5, 8.0, 5, 0.25, 0.25, 0.2, 0.3, 0.125)
STEP = Timing("n, 16 x 640 px", "float32, eager", 20.0, 19.0, 25.0, 5, float("nan"), 0.0,
    images=16, peak_bytes=3 << 30)  # fmt: skip
RUN = {"host": "EPYC, 4 cores", "date": "2026-01-02", "minutes": 10.0, "load_average": None,
    "jobs": [{"name": "ciou", "state": "done", "seconds": 3.0},
             {"name": "ema", "state": "failed with exit code 1", "seconds": 1.0}]}  # fmt: skip


def test_report_is_built_from_json_alone(tmp_path, monkeypatch, capsys):
    left = [{"case": "m, 64", "reason": "out of memory"}]
    write_json(tmp_path / "ciou.json", "PyTorch 2, EPYC", [PLAIN, FAST])
    write_json(tmp_path / "step_table.json", "PyTorch 2", [STEP], "cuda:0", left_out=left)
    (tmp_path / "epochs.json").write_text('{"of": "another program"}')
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert report.write_report(tmp_path) == tmp_path / "report.md"
    lines = (tmp_path / "report.md").read_text().splitlines()
    for line in (
        "EPYC, 4 cores, 2026-01-02, load average – at the end; time limit: --minutes 10.",
        "| ciou | done | 3.00 |",
        "| ciou | 10000 boxes | fused | 1.00 | 0.500 to 8.00 | 0.250 | 0.200 to 0.300 | 0.125 "
        "| – | – | 0.250 |",
        "| step_table | n, 16 x 640 px | float32, eager | 20.0 | 19.0 to 25.0 | – | – | – | 800 "
        "| 3.00 | 0.000 |",
        "| ema | failed with exit code 1 | 1.00 |",
        "| step_table | m, 64 | out of memory |",
    ):
        assert lines.count(line) == 1, line
    assert "another program" not in "".join(lines)


HEADING = "seconds/epoch,metrics/mAP_0.5,metrics/mAP_0.5:0.95"
RUNS = {  # per recipe and seed: rows of results.csv
    ("scratch-low", "0"): ["10,0.5,0.2", "10,0.86,0.4"],
    ("scratch-low", "1"): ["10,0.6,0.3", "10,0.7,0.5"],
    ("small", "0"): ["10,0.89,0.7", "12,0.91,0.6"],
    ("small", "1"): ["10,0.80,0.5", "14,0.87,0.5"],
}


def run(monkeypatch, *flags, code=0):
    asked = []

    def run_train(command, **_):
        value = {
            flag: command[command.index(flag) + 1] for flag in ("--hyp", "--seed", "--project")
        }
        asked.append((value["--hyp"], value["--seed"]))
        folder = Path(value["--project"]) / "run"
        folder.mkdir()
        (folder / "results.csv").write_text("\n".join([HEADING, *RUNS[asked[-1]]]))
        return SimpleNamespace(returncode=code, stderr="error: no such file")

    monkeypatch.setattr(small_data.subprocess, "run", run_train)
    monkeypatch.setattr("sys.argv", ["small_data", "--weights", "w.pt", *flags])
    small_data.main()
    return asked


def test_recipes_alternate_and_report_their_best_epochs(monkeypatch, capsys):
    asked = run(monkeypatch, "--seeds", "0", "1")
    recipes = ("scratch-low", "small")
    assert asked == [(recipe, seed) for seed in ("0", "1") for recipe in recipes]
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "| shapes | scratch-low | 0.780 (0.700 to 0.860) | 0.450 (0.400 to 0.500) | 20 | "
        "inf, inf, inf |",
        "| shapes | small | 0.880 (0.870 to 0.890) | 0.600 (0.500 to 0.700) | 23 | 17, inf, inf |",
    ]


def test_failed_training_ends_the_recipe_comparison(monkeypatch):
    with pytest.raises(UserError, match="ended with 2: error: no such file"):
        run(monkeypatch, "--seeds", "0", code=2)
    with pytest.raises(UserError, match="--epochs: give one number per recipe"):
        run(monkeypatch, "--epochs", "30")
