"""Command lines of public tutorials, the list of commands of `duet`, and what is refused early."""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

import duet
from duet.__main__ import COMMANDS
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_model
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.processes.launch import wanted_processes
from duet.utils.processes.start import PACKAGES
from duet.utils.project import PROJECT
from tests.environments import python

LINES = (
    "--data data/coco.yaml --weights ' ' --cfg models/yolov5n.yaml --batch 64",
    "--batch 16 --data coco.yaml --weights '' --device 0,1",
)


@pytest.mark.parametrize(
    ("line", "batch", "processes"), [(LINES[0], 64, 1), (LINES[1], 16, 2)], ids=["n", "s"]
)
def test_public_command_lines_are_accepted(line, batch, processes):
    config = parse_train_flags(shlex.split(line))
    assert (config.weights, config.batch_size) == ("", batch)
    assert wanted_processes(config.device, config.nproc) == processes
    with pytest.raises(Exception, match="coco"):  # its images are not shipped
        load_dataset(config.data)


@pytest.mark.parametrize("weights", ["", " "])
def test_training_without_weights_or_model_uses_yolov5s(weights, caplog):
    config = parse_train_flags(["--weights", weights])
    with caplog.at_level(logging.INFO, logger="train"):
        model = build_model(config, read_hyperparameters(config.hyp), None, ("a", "b"))
    assert model.spec == read_model_yaml("models/yolov5s.yaml", 2)
    (line,) = caplog.messages
    assert line == "no --weights and no --cfg: training models/yolov5s.yaml from scratch"


def run_duet(*words):
    return python("-m", "duet", *words)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_command_list_fits_on_one_screen(words):
    done = run_duet(*words)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.startswith("  ")} == COMMANDS.keys()


def test_version_flag_prints_the_version():
    done = run_duet("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"duet {duet.__version__}\n", "")


def test_every_command_is_a_module():
    assert all(find_spec(module) for module, _ in COMMANDS.values())


def test_unknown_command_suggests_the_nearest():
    done = run_duet("trian")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: unknown command trian; did you mean train?\n  `duet --help` lists all commands\n"
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("predict", "detect"),
        ("segment train", "train --task segment"),
        ("detect train", "train"),
        ("detect predict", "detect"),
    ],
)
def test_foreign_command_suggests_ours(words, meant):
    done = run_duet(*words.split())
    assert done.returncode == 2
    assert f"; did you mean {meant}?" in done.stderr


def test_unread_list_ends_without_a_traceback():
    line = f"{sys.executable} -m duet | true"
    done = subprocess.run(["bash", "-c", line], cwd=PROJECT, capture_output=True, text=True)
    assert done.stderr == ""


MODULES = {"opencv-python-headless": "cv2", "pillow": "PIL", "pyyaml": "yaml"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["segment/train.py", "--dropout", "0.1"], "--dropout applies only to the task classify"),
        (["classify/train.py", "--model", "gone.pt"], "--weights gone.pt: no such file"),
        (["segment/val.py", "--weights", "gone.pt"], "--weights gone.pt: no such file"),
        (["classify/val.py", "--weights=gone.pt"], "--weights gone.pt: no such file"),
        (["segment/predict.py", "--weights=W", "--source=none"], "--source none: no such file"),
        (["classify/predict.py", "--weights=W", "--source=none"], "--source none: no such file"),
        (["benchmarks.py", "--weights", "gone.pt"], "--weights gone.pt: no such file"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_scripts_at_public_paths_run_ours(words, answer):
    done = python(*words)
    assert done.returncode == 2 and answer in done.stderr, done


def test_suggested_command_runs_from_the_same_folder(tmp_path):
    """As after an export in a folder of one's own: the script of serve is not there."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def printed(*words):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout or done.stderr

    begin = f"import sys; sys.path[0] = {str(PROJECT)!r}; from duet.utils.project import *"
    line = printed(sys.executable, "-c", f"{begin}; print(command_line('serve', '--help'))")
    assert printed(*shlex.split(line)).startswith("usage: duet serve")
    environment["PYTHONPATH"] = "/packages/of/a/user"
    line = printed(sys.executable, "-c", f"{begin}; print(command_line('serve', '--help'))")
    assert shlex.split(line)[1] == f"PYTHONPATH={PROJECT}{os.pathsep}/packages/of/a/user"
    begin += "; sys.platform = 'win32'"
    line = printed(sys.executable, "-c", f"{begin}; print(command_line('serve', '--help'))")
    assert shlex.split(line)[1:4] == ["-m", "duet", "serve"]


def test_benchmarks_folder_is_not_shadowed_by_the_script():
    assert python("-m", "benchmarks", "--help").stdout.startswith("usage: python -m benchmarks")


def test_requirements_file_installs_the_project_with_torch():
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["-e .[torch]"]
    project = (PROJECT / "pyproject.toml").read_text().partition("[project.optional")[0]
    names = {MODULES.get(name, name) for name in re.findall(r'^    "([a-z-]+)>=', project, re.M)}
    assert names == set(PACKAGES)


# Runs one command after the other; prints how each ended and its errors. Both frameworks are there
# but fail as soon as one is imported.
ONE_AFTER_THE_OTHER = """
import contextlib, importlib, io, json, sys
from duet.utils.processes.command import run_command
ends = []
for script, *flags in json.loads(sys.argv[1]):
    sys.argv, errors = [script, *flags], io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            run_command(importlib.import_module(script).main)
        code = 0
    except SystemExit as end:
        code = end.code
    ends.append((code, errors.getvalue()))
print(json.dumps(ends))
"""
ONNX = ["--weights", "README.md", "--backend", "onnx"]
ON_CPU = [*ONNX, "--device", "0"]
SEARCH = ["train", "--evolve", "3", "--task", "detect", "--project", "runs/refused"]
REFUSED = [
    ([*SEARCH, "--data", "absent.yaml"], "--data absent.yaml: no dataset YAML at"),
    ([*SEARCH, "--weights", "absent.pt"], "--weights absent.pt: no such file"),
    ([*SEARCH, "--cfg", "absent.yaml"], "--cfg absent.yaml: no such file or public model"),
    (["train", "--cfg", "absent.yaml"], "--cfg absent.yaml: no such file or public model"),
    (["train", "--hyp", "absent.yaml"], "--hyp absent.yaml: No such file"),
    (["train", "--weights", "absent.pt"], "--weights absent.pt: no such file"),
    (["train", "--nproc", "2", "--device", "gpu"], "--device 'gpu' is invalid; accepted: cpu"),
    (["train", "--nproc", "2", "--loggers", "paper"], "--loggers"),
    (["train", "--backend", "jax"], "--backend jax; accepted: torch, oneflow"),
    (["train", "--seed", str(2**64)], "--seed 18446744073709551616"),
    (["train", "--evolve", "x"], "--evolve"),
    (["compare", "--data", "absent.yaml"], "--data absent.yaml: no such dataset YAML"),
    (["val", "--weights", "absent.pt", "--device", "gpu"], "--device 'gpu'"),
    (["val", *ON_CPU], "--device '0': backend onnx runs only on the CPU; use --device cpu, or"),
    (["val", *ONNX, "--nproc", "2", "--device", "cpu"],
     "2 processes need a backend that supports training, unlike 'onnx'"),
    (["train", "--cfg", "models/yolov5n.yaml", "--backend", "onnx"],
     "backend 'onnx' is inference-only; choose one that supports training: torch, oneflow"),
    (["detect", *ON_CPU], "--device '0': backend onnx runs only on the CPU; use --device cpu, or"),
]  # fmt: skip


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Exit code and errors of each command of REFUSED."""
    folder = tmp_path_factory.mktemp("frameworks")
    for name in ("torch", "oneflow"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    path = os.pathsep.join((str(folder), str(PROJECT)))
    lines = json.dumps([words for words, _ in REFUSED])
    done = python("-c", ONE_AFTER_THE_OTHER, lines, PYTHONPATH=path, PYTHONSAFEPATH="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[message for _, message in REFUSED])
def test_commands_refuse_flags_before_loading_a_framework(refusals, number):
    code, printed = refusals[number]
    assert code == 2
    assert printed.startswith("error: ") and REFUSED[number][1] in printed
    assert len(printed.splitlines()) <= 2


def test_refused_search_leaves_no_folder(refusals):
    assert not (PROJECT / "runs" / "refused").exists()
