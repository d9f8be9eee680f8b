"""benchmarks: a validation and epochs are timed side by side, and one command runs every script."""

import importlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import backend
from benchmarks import __main__ as every
from benchmarks import detect, epoch, nms, side_by_side, threads, val, val_host
from benchmarks.time_limit import TimeLimit
from tests.small import write_small_dataset, write_small_model
from tests.tiny_weights import write_tiny_weights
from utils.data.sources.dataset import load_dataset
from utils.errors import UserError
from utils.files.project import PROJECT


def run(monkeypatch, module, *flags):
    monkeypatch.setattr("sys.argv", [module.__name__, *map(str, flags)])
    module.main()


def test_the_plain_rule_of_the_nms_benchmark_is_the_greedy_one():
    boxes_xyxy = np.float32([[0, 0, 10, 1], [4, 0, 14, 1], [8, 0, 18, 1], [0, 0, 10, 1]])
    same, other = np.zeros(4, np.int64), np.array([0, 1, 0, 0])
    assert nms.one_by_one(boxes_xyxy, same, 0.4, 9).tolist() == [0, 2]  # IoU 3/7 of neighbours
    assert nms.one_by_one(boxes_xyxy, other, 0.4, 9).tolist() == [0, 1, 2]
    assert nms.one_by_one(boxes_xyxy, other, 0.4, 2).tolist() == [0, 1]


def test_a_validation_is_timed_both_ways(monkeypatch, tmp_path):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    path = tmp_path / "val.json"
    small = ("--img", 64, "--batch", 4, "--workers", 0, "--repeats", 1, "--device", "cpu")
    run(monkeypatch, val, "--data", data, "--cfg", model, *small, "--json", path)
    timings = json.loads(path.read_text())["timings"]
    assert [timing["name"] for timing in timings] == ["plain", "overlapped"]
    assert all(timing["case"] == "6 images, 64 px, batch 4" for timing in timings)


def test_the_parts_of_the_hosts_work_add_up(monkeypatch, tmp_path):
    data, weights = write_small_dataset(tmp_path), write_tiny_weights(tmp_path)
    path = tmp_path / "host.json"
    small = ("--img", 64, "--batch", 4, "--workers", 0, "--repeats", 3, "--device", "cpu")
    run(monkeypatch, val_host, "--data", data, "--weights", weights, *small, "--json", path)
    together, *parts = json.loads(path.read_text())["timings"]
    assert [part["name"] for part in parts] == ["NMS", "matching", "figures at the end"]
    assert together["case"] == "6 images, 64 px, batch 4"
    assert together["ratio"] == 1
    # The same run may be the fastest in all parts, whose sum then rounds in another order.
    assert sum(part["fastest"] for part in parts) <= together["fastest"] * (1 + 1e-12)
    assert together["fastest"] <= together["median"]
    assert all(0 < part["fastest"] <= part["median"] <= part["slowest"] for part in parts)


def test_detection_is_timed_beside_the_forward_pass(monkeypatch, tmp_path, capsys):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    monkeypatch.setattr(detect, "load_dataset", lambda *_, **__: load_dataset(data))
    path, images = tmp_path / "detect.json", data.parent / "images" / "val"
    small = ("--img", 64, "--batch", 4, "--repeats", 1, "--device", "cpu", "--cfg", model)
    run(monkeypatch, detect, "--source", images, *small, "--json", path)
    timings = json.loads(path.read_text())["timings"]
    assert [timing["name"] for timing in timings] == [
        "forward pass alone", "the same, in lanes", "detect --nosave", "detect"
    ]  # fmt: skip
    assert all(timing["case"] == "6 images, 64 px, batch 4" for timing in timings)
    *_, speed, stages = capsys.readouterr().out.splitlines()
    assert float(speed.removeprefix("detect: ").removesuffix(" images/s")) == pytest.approx(
        6000 / timings[3]["median"], abs=0.06
    )
    assert stages.startswith("stages: decode 0.")


def test_the_forward_pass_alone_sees_every_image_once(monkeypatch, tmp_path):
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    monkeypatch.setattr(detect, "load_dataset", lambda *_, **__: load_dataset(data))
    source = str(data.parent / "images" / "val")
    flags = SimpleNamespace(weights="", cfg=model, source=source, img=64, batch=4, images=5)
    assert sum(len(tensor) for tensor in detect.build(flags, "cpu").batches()) == 5


def test_a_step_is_timed_by_its_threads_on_either_backend(monkeypatch, tmp_path):
    path, model = tmp_path / "threads.json", write_small_model(tmp_path)
    small = ("--img", 64, "--batch", 2, "--repeats", 1, "--device", "cpu", "--cfg", model)
    own = backend.device.host_threads()  # so that the tests after this one have as many
    run(monkeypatch, threads, *small, "--threads", own, "--json", path)
    timings = json.loads(path.read_text())["timings"]
    assert [timing["name"] for timing in timings] == [f"threads: {own}"] * 2
    assert all(timing["fastest"] > 0 for timing in timings)


def test_a_validation_that_measures_something_else_is_not_timed():
    figures = [SimpleNamespace(summary=lambda x=x: {"AP": x}) for x in (0.5, 0.50009, 0.6)]
    val.require_equal_figures(*figures[:2])
    with pytest.raises(SystemExit, match="unequal work"):
        val.require_equal_figures(*figures[1:])


def fake_training(monkeypatch, seconds, failing=(), work=None):
    """train.py whose epochs take these seconds; returns the commands that were run.

    One that has a flag out of `failing` ends as for want of memory; `work` changes what one that
    has a certain flag did.
    """
    commands = []

    def run_train(command, **_):
        commands.append(command)
        if set(failing) & set(command):
            return SimpleNamespace(returncode=1, stderr="out of memory\n")
        folder = epoch.Path(command[command.index("--project") + 1]) / "epoch"
        folder.mkdir()
        lines = ["seconds/epoch", *map(str, seconds[len(commands) - 1])]
        (folder / "results.csv").write_text("\n".join(lines))
        done = {
            "batches_sha1": "ab",
            "optimizer_steps": 6,
            "parameters": 9,
            "layout": len(commands),
        }
        for flag, changes in (work or {}).items():
            done.update(changes if flag in command else {})
        (folder / "work.json").write_text(json.dumps({"work": done}))
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(epoch.subprocess, "run", run_train)
    return commands


def test_epochs_are_timed_in_turns_without_the_first(monkeypatch, tmp_path, capsys):
    data = write_small_dataset(tmp_path)
    commands = fake_training(monkeypatch, [(9, 4, 6), (9, 1, 2), (9, 5, 5), (9, 3, 2)])
    path = tmp_path / "epoch.json"
    run(monkeypatch, epoch, "--data", data, "--repeats", 2, "--device", "cpu", "--fast", "--a --b",
        "--json", path)  # fmt: skip
    plain, fast = json.loads(path.read_text())["timings"]
    assert (plain["median"], plain["fastest"], plain["slowest"], plain["runs"]) == (
        5e3,
        4e3,
        6e3,
        4,
    )
    assert (fast["median"], fast["ratio"]) == (2e3, 0.4)
    assert [command[-6:-4] == ["--a", "--b"] for command in commands] == [False, True] * 2
    assert "--amp off" in " ".join(commands[0])  # a GPU would compute the plain path in bfloat16
    assert "plain: 2 images/s" in capsys.readouterr().out  # 12 images in 5 s


def test_the_table_has_a_run_for_every_combination(monkeypatch, tmp_path):
    data = write_small_dataset(tmp_path)
    commands = fake_training(monkeypatch, [(2, 1)] * 24)
    run(monkeypatch, epoch, "--table", "--data", data, "--epochs", 2, "--device", "cpu")
    pairs = {
        tuple(command[command.index(flag) + 1] for flag in ("--cfg", "--batch", "--amp"))
        + ("--compile" in command,)
        for command in commands
    }
    assert len(commands) == len(pairs) == 24
    assert ("models/yolov5m.yaml", "64", "bf16", True) in pairs


def test_epochs_that_are_ended_keep_the_cases_before(monkeypatch, tmp_path):
    data, path = write_small_dataset(tmp_path), tmp_path / "epoch.json"
    fake_training(monkeypatch, [(2, 1)] * 3)  # the second case lacks its second training
    flags = ("--models", "n", "--batch", 16, 64, "--device", "cpu", "--json", path)
    with pytest.raises(IndexError):
        run(monkeypatch, epoch, *flags, "--data", data)
    cases = [timing["case"] for timing in json.loads(path.read_text())["timings"]]
    assert cases == ["n, 16 x 320 px"] * 2


def test_what_cannot_be_trained_is_named_and_the_rest_is_measured(monkeypatch, tmp_path, capsys):
    data, path = write_small_dataset(tmp_path), tmp_path / "table.json"
    commands = fake_training(monkeypatch, [(2, 1)] * 24, failing=("bf16",))
    flags = ("--table", "--models", "m", "--batch", 16, 64, "--repeats", 2, "--epochs", 2)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, epoch, *flags, "--data", data, "--device", "cpu", "--json", path)
    assert ended.value.code == 1
    measured = [timing["name"] for timing in json.loads(path.read_text())["timings"]]
    assert measured == ["float32, eager", "float32, compiled"] * 2
    assert len(commands) == 2 * (2 * 2 + 2)  # of each batch, and what fails is not tried again
    printed = capsys.readouterr().out
    assert printed.count("not measured: ") == 4
    assert "m, 64 x 320 px, bfloat16, eager: not measured: " in printed
    assert printed.count("ended with 1: out of memory") == 4


@pytest.mark.parametrize(
    "changed", [{"batches_sha1": "cd"}, {"optimizer_steps": 5}, {"parameters": 10}]
)
def test_epochs_of_other_work_have_no_figure(monkeypatch, tmp_path, capsys, changed):
    data, path = write_small_dataset(tmp_path), tmp_path / "epoch.json"
    fake_training(monkeypatch, [(2, 1)] * 2, work={"--cache": changed})
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, epoch, "--data", data, "--device", "cpu", "--json", path)
    assert ended.value.code == 1
    assert [timing["name"] for timing in json.loads(path.read_text())["timings"]] == ["plain"]
    (name,) = changed
    told = f"fast: not measured: unequal work: {name} is {changed[name]}, "
    assert told in capsys.readouterr().out


def test_another_batch_size_may_do_other_work(monkeypatch, tmp_path):
    fake_training(monkeypatch, [(2, 1)] * 8, work={"64": {"optimizer_steps": 2}})
    flags = ("--table", "--models", "n", "--epochs", 2, "--device", "cpu")
    run(monkeypatch, epoch, *flags, "--data", write_small_dataset(tmp_path))


def test_without_the_reference_the_others_have_times_and_no_ratio(monkeypatch, tmp_path):
    data, path = write_small_dataset(tmp_path), tmp_path / "epoch.json"
    fake_training(monkeypatch, [(2, 1)] * 2, failing=("contiguous",))
    with pytest.raises(SystemExit):
        run(monkeypatch, epoch, "--data", data, "--device", "cpu", "--json", path)
    (fast,) = json.loads(path.read_text())["timings"]
    assert (fast["name"], fast["median"], fast["ratio"]) == ("fast", 1e3, None)


def test_a_training_that_fails_is_told_with_what_it_said(monkeypatch, tmp_path, capsys):
    data = write_small_dataset(tmp_path)
    flags = ("--data", data, "--device", "cpu", "--img", 100, "--epochs", 2, "--models", "n")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, epoch, *flags)
    assert ended.value.code == 1
    assert capsys.readouterr().out.count("--img 100 is no multiple") == 2
    with pytest.raises(UserError, match="2 are needed"):
        run(monkeypatch, epoch, "--epochs", 1)


def run_every(monkeypatch, *flags, clock=lambda: 0.0):
    """The commands that one command runs, of which that of benchmarks.nms fails."""
    lines = []

    def run_within(line, environment, seconds, output):
        lines.append(line)
        write_rows(line)
        return 1 if line[2] == "benchmarks.nms" else 0

    monkeypatch.setattr(every, "run_within", run_within)
    monkeypatch.setattr(every, "TimeLimit", lambda minutes: TimeLimit(minutes, clock))
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, every, *flags)
    assert ended.value.code == int("nms" in [line[2].removeprefix("benchmarks.") for line in lines])
    return lines


def write_rows(line):
    """Write the JSON of a script that is asked for it."""
    if "--json" in line:
        row = side_by_side.Timing("case", "name", 2.0, 1.0, 3.0, 1, 1.0)
        side_by_side.write_json(Path(line[line.index("--json") + 1]), "machine", [row])


def test_one_command_runs_every_script_and_names_those_that_fail(monkeypatch, tmp_path, capsys):
    lines = run_every(monkeypatch, "--device", "cpu", "--output", tmp_path / "bench")
    report = tmp_path / "bench" / "report.md"
    assert capsys.readouterr().out.endswith(f"\nreport in {report}\nnms: failed with exit code 1\n")
    assert "| nms | – | failed with exit code 1 |" in report.read_text()
    scripts = [line[2].removeprefix("benchmarks.") for line in lines]
    assert {"metric", "nms", "val", "epoch", "step_profile"} <= set(scripts)
    assert not (every.NO_BENCHMARK | every.GPU_ALONE) & set(scripts)
    assert all(f"{tmp_path / 'bench' / name}.json" in line
               for name, line in zip(scripts, lines, strict=True))  # fmt: skip
    assert all(line[0] == sys.executable for line in lines)


def test_what_the_time_does_not_reach_is_named(monkeypatch, tmp_path, capsys):
    """A clock on which each job takes a minute or two."""
    ticks = iter(range(0, 6000, 60))
    flags = ("--device", "cpu", "--minutes", 4, "--only", "ciou", "ema", "metric")
    path = tmp_path / "metric.json"
    path.write_text("of an earlier run")
    lines = run_every(monkeypatch, *flags, "--output", tmp_path, clock=lambda: float(next(ticks)))
    assert [line[2] for line in lines] == ["benchmarks.ciou"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [f"{name}: not reached within --minutes 4" for name in ("ema", "metric")]
    assert "| ema | – | not reached within --minutes 4 |" in (tmp_path / "report.md").read_text()
    assert not path.exists()  # no figure of an earlier run in this one


def test_a_job_has_the_time_that_is_left_and_one_that_is_ended_is_named(monkeypatch, tmp_path):
    left = []
    monkeypatch.setattr(every, "run_within", lambda *words: left.append(words[2]))  # None: ended
    monkeypatch.setattr(every, "TimeLimit", lambda minutes: TimeLimit(minutes, lambda: 0.0))
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, every, "--minutes", 1.5, "--only", "ciou", "--output", tmp_path)
    assert (left, ended.value.code) == ([90.0], 0)
    assert "| ciou | – | ended by --minutes 1.5 |" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_limit_that_is_none_is_refused(monkeypatch, tmp_path, minutes):
    with pytest.raises(UserError, match="--minutes"):
        run(monkeypatch, every, f"--minutes={minutes}", "--output", tmp_path)


def test_a_damaged_file_of_results_is_told_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(every, "run_within", lambda *_: pytest.fail("a job was run"))
    (tmp_path / "serve.json").write_text("{")
    with pytest.raises(UserError, match="serve.json"):
        run(monkeypatch, every, "--only", "ciou", "--output", tmp_path)


def test_the_tests_of_a_gpu_are_a_job_whose_end_is_reported(monkeypatch, tmp_path):
    def run_within(line, environment, seconds, output):
        assert line[1:3] == ["-m", "pytest"] and "tests/conformance" in line
        assert environment["YOLO_BACKEND"] == backend.use()
        assert all((PROJECT / path).exists() for path in line[5:])
        output.write_text("3 passed in 2 s")
        return 0

    monkeypatch.setattr(every, "run_within", run_within)
    with pytest.raises(SystemExit):
        run(monkeypatch, every, "--only", "tests", "--output", tmp_path)
    assert "## Tests\n\n```\n3 passed in 2 s\n```\n" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("name", every.names())
def test_whatever_is_listed_is_a_command(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").main)


def told_on_exit_2(monkeypatch, capsys, name, *flags):
    """What a script, run as a command, writes to stderr before it ends with exit code 2."""
    monkeypatch.setattr("sys.argv", [name, *flags])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(every.FOLDER / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "1.5"])
@pytest.mark.parametrize("name", every.names())
def test_a_number_of_runs_below_one_ends_with_two_lines(monkeypatch, capsys, name, number):
    told = told_on_exit_2(monkeypatch, capsys, name, f"--repeats={number}")
    first, second = told.splitlines()
    assert first.startswith("error: argument --repeats: ") and number in first
    assert second == f"`python -m benchmarks.{name} --help` lists what is accepted"


@pytest.mark.parametrize("name", sorted(set(every.names()) - every.NUMPY_ALONE))
def test_a_device_that_is_none_ends_with_one_message(monkeypatch, capsys, name):
    told = told_on_exit_2(monkeypatch, capsys, name, "--device", "toaster")
    assert told.count("error: ") == 1 and "toaster" in told


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", sorted({*every.names(), every.FURTHER[1]} - every.NUMPY_ALONE))
def test_a_job_gives_a_script_flags_that_it_knows(monkeypatch, capsys, tmp_path, name, device):
    """Only the device, which is looked at when all flags are known, is wrong."""
    _, _, script, *flags = every.job(name, SimpleNamespace(output=tmp_path), device).line
    flags[flags.index("--device") + 1] = "toaster"
    told = told_on_exit_2(monkeypatch, capsys, script.removeprefix("benchmarks."), *flags)
    assert told.count("error: ") == 1 and "--device" in told and "toaster" in told


@pytest.mark.parametrize("name", ["epoch", "loader", "val"])
def test_data_that_are_none_end_with_one_message(monkeypatch, capsys, name):
    told = told_on_exit_2(monkeypatch, capsys, name, "--device", "cpu", "--data", "absent.yaml")
    assert told.count("error: ") == 1 and "absent.yaml" in told


def test_on_a_gpu_what_tells_most_comes_first_and_some_on_the_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr("backend.device.resolve", lambda device: "cuda:0")
    only = ("epoch", "loader", "ciou", "step_table_compiled", "step_profile", "step_table")
    lines = run_every(monkeypatch, "--device", 0, "--output", tmp_path, "--only", *only)
    found = [(line[2], line[line.index("--device") + 1], Path(line[-1]).stem) for line in lines]
    assert found == [
        ("benchmarks.step_table", "cuda:0", "step_table"),
        ("benchmarks.step_profile", "cuda:0", "step_profile"),
        ("benchmarks.ciou", "cuda:0", "ciou"),
        ("benchmarks.step_table", "cuda:0", "step_table_compiled"),
        ("benchmarks.loader", "cpu", "loader"),
        ("benchmarks.epoch", "cuda:0", "epoch"),
    ]
    executions = [line[line.index("--execution") + 1] for line in (lines[0], lines[3])]
    assert executions == ["eager", "compiled"]
    assert json.loads((tmp_path / "run.json").read_text())["minutes"] == 10


def test_on_a_gpu_every_script_the_tests_and_compiled_steps_run(monkeypatch, tmp_path):
    monkeypatch.setattr("backend.device.resolve", lambda device: "cuda:0")
    jobs = every.jobs(SimpleNamespace(only=None, output=tmp_path), "cuda:0")
    assert sorted(job.name for job in jobs) == sorted([*every.names(), *every.FURTHER])
    assert jobs[0].name == "step_table" and jobs[-1].name in every.LAST


def test_every_script_is_imported_before_a_backend_is_chosen():
    """A process of its own: in this one the backend is chosen already."""
    scripts = sorted(path.stem for path in (PROJECT / "benchmarks").glob("*.py"))
    code = "import " + ", ".join(f"benchmarks.{name}" for name in scripts)
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
