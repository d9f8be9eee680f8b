"""The scripts and the requirements file at the places where YOLOv5 has them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from duet.utils.processes.start import PACKAGES
from duet.utils.project import PROJECT

MODULES = {"opencv-python-headless": "cv2", "pillow": "PIL", "pyyaml": "yaml"}


def run(*words):
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


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
def test_the_scripts_at_public_places_run_ours(words, answer):
    code, printed = run(*words)
    assert code == 2 and answer in printed, printed


def test_the_folder_of_benchmarks_is_not_shadowed_by_the_script():
    code, printed = run("-m", "benchmarks", "--help")
    assert code == 0 and printed.startswith("usage: python -m benchmarks"), printed


def test_the_requirements_file_installs_this_project_with_pytorch():
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["-e .[torch]"]
    project = (PROJECT / "pyproject.toml").read_text().partition("[project.optional")[0]
    names = {MODULES.get(name, name) for name in re.findall(r'^    "([a-z-]+)>=', project, re.M)}
    assert names == set(PACKAGES)
