"""duet doctor: what it measures, and what it advises."""

import importlib.metadata
import platform

import pytest

from duet.backend import use
from duet.models.training import doctor
from duet.models.training.doctor import choices, verdict
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.errors import UserError
from tests.small import write_small_dataset, write_small_model, write_tiny_anchor_free

FLAGS = ("--workers 1", "--workers 4", "--workers 1 --cache ram")


@pytest.mark.parametrize(
    ("measured", "start", "advice"),
    [
        ((30.0, 60.0, 90.0), "model. The loader runs at 3.00 times", "--img below 320"),
        ((5.0, 20.0, 10.0), "loader, at 0.50 times", "--workers 4 gives 20.0 images/s"),
        ((5.0, 10.0, 30.0), "loader, at 0.50", "--workers 1 --cache ram gives 30.0 images/s"),
        ((5.0, 5.0, 5.0), "loader, at 0.50", "no flag made it faster: use --img below"),
    ],
)
def test_verdict_names_the_slower_part_and_a_flag(measured, start, advice):
    speeds = list(zip(FLAGS, measured, strict=True))
    text = verdict(320, 10.0, speeds, on_cpu=False)
    assert text.startswith(f"bottleneck: the {start}") and advice in text
    assert "share the cores" not in text
    # An image costs 1/30 s of the loader and 1/10 s of the model.
    share = {30.0: 25, 5.0: 67}[measured[0]]
    text = verdict(320, 10.0, speeds, on_cpu=True)
    assert f"the loader uses about {share} %" in text


def test_doctor_measures_the_given_flags_first(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})  # may be used
    for flags, chosen in (
        (["--workers", "1"], [(1, ""), (4, ""), (1, "ram")]),
        (["--device", "cpu"], [(2, ""), (1, ""), (4, ""), (2, "ram")]),
        (["--workers", "8", "--cache", "disk"], [(4, "disk"), (1, "disk")]),
        (["--workers", "0"], [(0, ""), (1, ""), (4, ""), (0, "ram")]),
    ):
        config = parse_train_flags(["--cfg", "F", *flags])
        assert choices(config.workers, config.device, config.cache) == chosen


@pytest.mark.parametrize("write_model", [write_small_model, write_tiny_anchor_free])
def test_doctor_names_the_bottleneck(write_model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "SECONDS", 0.05)
    data, model = write_small_dataset(tmp_path), write_model(tmp_path)
    flags = f"doctor --data {data} --cfg {model} --img 64 --batch 4 --device cpu --workers 0"
    monkeypatch.setattr("sys.argv", flags.split())
    doctor.main()
    printed = capsys.readouterr().out
    assert "images/s in training steps of 4" in printed
    loader_lines = [line for line in printed.splitlines() if line.startswith("loader: ")]
    assert "images/s with --workers 0, " in loader_lines[0]
    assert "images/s with --workers 1, " in loader_lines[1]
    assert "images/s with --workers 0 --cache ram, " in loader_lines[-1]
    assert printed.count("bottleneck: the ") == 1


def test_doctor_without_flags_describes_the_system(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["duet doctor"])
    monkeypatch.setattr(doctor, "EXTRAS", {"onnx": "export", "no_such_package": "export"})
    monkeypatch.setattr(doctor, "install_command", "pip install {}".format)
    doctor.main()
    *rows, last = capsys.readouterr().out.splitlines()
    table = {row[:20].strip(): row[20:] for row in rows}
    assert table["system"].startswith(platform.system())
    assert table["Python"] == platform.python_version()
    assert table[use()] == importlib.metadata.version(use())
    assert table["no_such_package"] == "missing: pip install no_such_package"
    assert "--data shapes" in last


def test_doctor_refuses_unmeasurable_flags_and_labels(tmp_path, monkeypatch):
    data = write_small_dataset(tmp_path)
    for flags, message in (
        ("--nproc 2 --batch 16", "--nproc 2: doctor measures a single process.* --batch-size 8"),
        ("--batch-size -1", "--batch-size -1: doctor needs a fixed number of images"),
        ("--data nowhere", "--data nowhere: no dataset YAML"),
        (f"--data {data} --cfg yolov5n-cls.yaml --device cpu", "a classifier needs one class"),
    ):
        monkeypatch.setattr("sys.argv", ["doctor", *flags.split()])
        with pytest.raises(UserError, match=message):
            doctor.main()
