"""What is refused before a framework is imported or a rank is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest

from backend import device as device_of_backend
from backend import use
from backend.select import FRAMEWORKS
from tests.small import write_small_model
from utils.cli.export_config import ExportConfig
from utils.errors import UserError
from utils.files.project import PROJECT
from utils.state import start_checks
from utils.state.folder import create_run_folder
from utils.state.start_checks import check_device, check_export, check_new_folder

# Both frameworks are there but fail as soon as one is imported.
FAILING = "raise SystemExit('the framework was imported')\n"


# Trains with one list of flags after the other; prints how each ended and what it said.
ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
import train
from utils.processes.command import run_command
ends = []
for flags in json.loads(sys.argv[1]):
    sys.argv, errors = ["train.py", *flags], io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            run_command(train.main, several=True)
        code = 0
    except SystemExit as end:
        code = end.code
    ends.append((code, errors.getvalue()))
print(json.dumps(ends))
"""


def without_frameworks(folder):
    """The environment of a process in which no framework may be imported."""
    for name in ("torch", "oneflow"):
        (folder / "first" / name).mkdir(parents=True)
        (folder / "first" / name / "__init__.py").write_text(FAILING)
    path = os.pathsep.join((str(folder / "first"), str(PROJECT)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


@pytest.fixture
def run(tmp_path):
    """Run a command whose framework must not be imported; return its standard error."""
    environment = without_frameworks(tmp_path)

    def run(*command):
        done = subprocess.run(
            [sys.executable, *map(str, command)], cwd=PROJECT, capture_output=True, text=True,
            env=environment,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        return done.stderr

    return run


REFUSED = [
    (["--img", "33"], "--img 33 is no multiple of the model's stride 32; use 64"),
    (["--cfg", "yolov5n6", "--img", "33"], "--img 33 is no multiple of the model's stride 32"),
    (["--project", "/proc/x"], "--project /proc/x --name exp: no folder can be made in /proc: "),
    (
        ["--project", "/etc/passwd"],
        "--project /etc/passwd --name exp: no folder can be made in /etc/passwd: Not a dir",
    ),
    (["--name", 300 * "x"], ": File name too long"),
    (["--cfg", "absent.yaml"], "--cfg absent.yaml: there is no such file"),
    (["--hyp", "absent.yaml"], "--hyp absent.yaml: No such file"),
    (["--weights", "absent.pt"], "--weights absent.pt: no such file"),
    (["--device", "gpu"], "--device 'gpu': cpu, a GPU's number such as 0"),
    (["--backend", "jax"], "argument --backend: invalid choice: 'jax'"),
    (["--seed", str(2**64)], "--seed 18446744073709551616"),
    (["--evolve", "x"], "--evolve"),
]
COUNTS = ((), ("--nproc", "2"))  # of processes


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Exit codes and errors of trainings in one process, by flags and by COUNTS."""
    asked = [["--device", "cpu", *several, *flags] for flags, _ in REFUSED for several in COUNTS]
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(asked)], cwd=PROJECT,
        capture_output=True, text=True, env=without_frameworks(tmp_path_factory.mktemp("none")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    return [ended[number : number + len(COUNTS)] for number in range(0, len(ended), len(COUNTS))]


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[message for _, message in REFUSED])
def test_a_training_refuses_flags_before_a_framework_or_rank_starts(ends, number):
    for code, printed in ends[number]:
        assert code == 2
        assert printed.startswith("error: ") and REFUSED[number][1] in printed
        assert len(printed.splitlines()) <= 2


def test_the_command_itself_refuses_a_flag_before_a_framework_starts(run):
    assert run("train.py", "--device", "cpu", *REFUSED[0][0]).startswith("error: --img 33 ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--annotations", "nothing.json"], "--annotations nothing.json: no such file"),
        (["--weights", "absent.pt"], "--weights absent.pt: no such file"),
        (
            ["--project", "/proc/x"],
            "--project /proc/x --name exp: no folder can be made in /proc: ",
        ),
        (["--device", "gpu"], "--device 'gpu'"),
    ],
)
def test_a_validation_refuses_flags_before_a_framework_starts(run, flags, message, tmp_path):
    weights = write_small_model(tmp_path)  # is there, but is not read
    assert message in run("val.py", "--weights", weights, "--device", "cpu", *flags)


def test_tracking_without_its_package_is_refused_before_a_framework_starts(run, tmp_path):
    (tmp_path / "first" / "trackers.py").write_text("raise ImportError('x', name='trackers')\n")
    source = ("detect.py", "--weights", "README.md", "--source", "README.md")
    command = "pip install --no-deps -r requirements/optional.in"
    assert run(*source, "--track") == f"error: --track needs trackers: {command}\n"


@pytest.mark.parametrize("name", ["torchscript", "ncnn", "coreml"])
@pytest.mark.parametrize("backend", ["oneflow", "onnx"])
def test_a_format_made_of_a_trace_is_refused_before_any_file_without_pytorch(
    name, backend, tmp_path, monkeypatch
):
    """Also where its packages are absent, which would be installed in vain."""
    monkeypatch.setattr(start_checks.select, "choose", lambda asked: asked)
    path = str(write_small_model(tmp_path))
    config = ExportConfig(path, include=("onnx", name), backend=backend)
    with pytest.raises(UserError) as caught:
        check_export(config)
    assert str(caught.value) == (
        f"--include {name} is made of a TorchScript trace, which backend '{backend}' cannot write; "
        "give --backend torch, or leave it out"
    )


def test_a_format_made_of_a_trace_passes_with_pytorch(tmp_path, monkeypatch):
    monkeypatch.setattr(start_checks.select, "choose", lambda asked: "torch")
    check_export(ExportConfig(str(write_small_model(tmp_path)), include=("torchscript",)))


def test_what_is_told_of_torchscript_before_the_import_is_what_the_backend_supports():
    assert FRAMEWORKS[use()].torchscript == device_of_backend.supports("torchscript")


@pytest.mark.parametrize("device", ["0", "cuda:1", "0,1"])
def test_a_gpu_is_refused_where_no_driver_is_to_be_seen(device, monkeypatch):
    monkeypatch.setattr(start_checks, "sees_driver", lambda: False)
    with pytest.raises(UserError, match=f"--device '{device}' is not there: this machine shows no"):
        check_device(device)
    for other in ("", "cpu"):
        check_device(other)


def test_a_gpu_is_refused_under_a_backend_of_the_cpu_whatever_the_driver(run, tmp_path):
    told = (
        "error: --device '0': backend onnx computes on the CPU; use --device cpu, or --backend "
        "torch or oneflow\n"
    )
    for script in (("val.py",), ("detect.py", "--source", "README.md")):
        given = (*script, "--weights", "README.md", "--backend", "onnx", "--device", "0")
        assert run(*given) == told


def test_a_gpu_passes_where_a_driver_is_installed(monkeypatch):
    monkeypatch.setattr(start_checks, "sees_driver", lambda: True)
    check_device("0,1")


@pytest.mark.parametrize("device", ["gpu", "0,,1", "cuda", "-1", "cuda:x", " "])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(UserError, match="cpu, a GPU's number such as 0, or 0,1 is needed"):
        check_device(device)


def test_a_folder_that_can_be_made_is_tried_and_leaves_nothing(tmp_path):
    check_new_folder(tmp_path / "a" / "b", "exp")
    assert list(tmp_path.iterdir()) == []


def test_a_place_for_runs_that_cannot_be_written_to_names_flag_place_and_next_step(tmp_path):
    (tmp_path / "file").touch()
    project = tmp_path / "file" / "runs"
    for make in (check_new_folder, partial(create_run_folder, exist_ok=False)):
        with pytest.raises(UserError) as caught:
            make(project, "exp")
        text = str(caught.value)
        assert text.startswith(
            f"--project {project} --name exp: no folder can be made in {tmp_path}/"
        )
        assert ": Not a directory; give a --project that can be written to" in text


def test_a_loop_of_links_for_cfg_is_left_to_whoever_reads_it(tmp_path):
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    start_checks.check_public_size(100, str(loop))  # no public model, so any size passes here
    with pytest.raises(UserError, match="--img 100"):
        start_checks.check_public_size(100, "yolov5n.yaml")
