"""python -m models.training.doctor: what it measures, and what it advises."""

import subprocess
import sys

import pytest

from models.training import doctor
from models.training.doctor import LoaderSpeed, choices, verdict
from tests.small import write_small_dataset, write_small_model
from tests.unit.models.training.small_tasks import write_small_task
from utils.cli.train_config import parse_train_flags
from utils.errors import UserError
from utils.processes.cores import loader_workers

CONFIG = parse_train_flags(["--cfg", "F", "--workers", "1", "--img", "320"])


def speeds(*images_per_second):
    measured = ((1, ""), (4, ""), (1, "ram"))
    return [
        LoaderSpeed(*flags, speed) for flags, speed in zip(measured, images_per_second, strict=True)
    ]


def test_a_loader_that_keeps_up_leaves_the_model_as_the_bottleneck():
    text = verdict(CONFIG, 10.0, speeds(30.0, 60.0, 90.0), on_cpu=False)
    assert text.startswith("bottleneck: the model. The loader is 3.0 times")
    assert "smaller --img than 320" in text


@pytest.mark.parametrize(
    ("measured", "advice"),
    [
        ((5.0, 20.0, 10.0), "--workers 4 gives enough: 20.0 images/s"),
        ((5.0, 10.0, 30.0), "--workers 1 --cache ram gives enough: 30.0 images/s"),
        ((5.0, 8.0, 6.0), "--workers 4 gives more: 8.0 images/s"),
        ((5.0, 5.0, 5.0), "no flag was faster here: use a smaller --img than 320"),
    ],
)
def test_a_loader_that_is_too_slow_names_the_flag_that_is_fastest(measured, advice):
    text = verdict(CONFIG, 10.0, speeds(*measured), on_cpu=False)
    assert text.startswith("bottleneck: the loader. It has 0.50 of the model's speed")
    assert advice in text


def test_on_a_cpu_the_share_of_the_loader_is_told():
    # An image costs 1/30 s of the loader and 1/10 s of the model.
    text = verdict(CONFIG, 10.0, speeds(30.0, 60.0, 90.0), on_cpu=True)
    assert "the loader takes about 25 % of them" in text
    assert "share the cores" not in verdict(CONFIG, 10.0, speeds(30.0, 60.0, 90.0), on_cpu=False)


def test_several_processes_are_refused_with_the_share_of_one(monkeypatch):
    monkeypatch.setattr("sys.argv", ["doctor", "--nproc", "2", "--batch", "16"])
    with pytest.raises(UserError, match="--nproc 2: one process is measured.* --batch-size 8"):
        doctor.main()


def test_the_choice_of_the_flags_is_measured_first(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})  # may be used
    assert choices(CONFIG) == [(1, ""), (4, ""), (1, "ram")]
    unasked = parse_train_flags(["--cfg", "F", "--device", "cpu"])
    assert choices(unasked) == [(2, ""), (1, ""), (4, ""), (2, "ram")]
    many = parse_train_flags(["--cfg", "F", "--workers", "8", "--cache", "disk"])
    assert choices(many) == [(4, "disk"), (1, "disk")]
    none = parse_train_flags(["--cfg", "F", "--workers", "0"])
    assert choices(none) == [(0, ""), (1, ""), (4, ""), (0, "ram")]
    assert loader_workers(8, "cpu") == 4
    assert loader_workers(0, "cpu") == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_and_model_are_measured_and_the_bottleneck_is_named(
    tmp_path, monkeypatch, capsys, workers
):
    monkeypatch.setattr(doctor, "SECONDS", 0.05)
    data, model = write_small_dataset(tmp_path), write_small_model(tmp_path)
    flags = f"doctor --data {data} --cfg {model} --img 64 --batch 4 --device cpu"
    monkeypatch.setattr("sys.argv", [*flags.split(), "--workers", str(workers)])
    doctor.main()
    printed = capsys.readouterr().out
    assert "images/s in training steps of 4" in printed
    assert "images/s with --workers 1, " in printed
    loader_lines = [line for line in printed.splitlines() if line.startswith("loader: ")]
    assert f"images/s with --workers {workers}, " in loader_lines[0]
    assert f"images/s with --workers {workers} --cache ram, " in loader_lines[-1]
    assert printed.count("bottleneck: the ") == 1


@pytest.mark.parametrize("task", ["segment", "classify"])
def test_other_tasks_are_measured_with_their_own_images(tmp_path, monkeypatch, capsys, task):
    monkeypatch.setattr(doctor, "SECONDS", 0.05)
    monkeypatch.setattr(doctor, "choices", lambda config: [(0, "")])
    data, model = write_small_task(tmp_path, task)
    flags = f"doctor --data {data} --cfg {model} --img 64 --batch 4 --device cpu --workers 0"
    monkeypatch.setattr("sys.argv", flags.split())
    doctor.main()
    printed = capsys.readouterr().out
    assert "images/s in training steps of 4" in printed
    assert printed.count("bottleneck: the ") == 1


def test_labels_of_another_task_are_refused(tmp_path, monkeypatch):
    data, _ = write_small_task(tmp_path, "detect")
    _, model = write_small_task(tmp_path, "classify")
    monkeypatch.setattr("sys.argv", f"doctor --data {data} --cfg {model} --device cpu".split())
    with pytest.raises(UserError, match="a classifier needs one class for each image"):
        doctor.main()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--data", "nowhere"), "--data nowhere: no dataset YAML"),
        (("--data", "shapes", "--batch", "0"), "--batch-size 0"),
        (("--data", "shapes", "--weights", "nowhere.pt"), "--weights nowhere.pt"),
    ],
)
def test_a_mistake_ends_it_with_a_message_and_code_2(flags, message):
    command = [sys.executable, "-m", "models.training.doctor", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_all_that_is_printed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["doctor", "--help"])
    with pytest.raises(SystemExit):
        doctor.main()
    assert capsys.readouterr().out.startswith("usage: ")
