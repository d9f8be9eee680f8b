"""What is refused before a framework is imported or a rank is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from duet.utils.project import PROJECT

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
ON_CPU = ["--weights", "README.md", "--backend", "onnx", "--device", "0"]
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
    (["train", "--backend", "jax"], "argument --backend: invalid choice: 'jax'"),
    (["train", "--seed", str(2**64)], "--seed 18446744073709551616"),
    (["train", "--evolve", "x"], "--evolve"),
    (["val", "--weights", "absent.pt", "--device", "gpu"], "--device 'gpu'"),
    (["val", *ON_CPU], "--device '0': backend onnx runs only on the CPU; use --device cpu, or"),
    (["detect", *ON_CPU], "--device '0': backend onnx runs only on the CPU; use --device cpu, or"),
]


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Exit code and errors of each command of REFUSED."""
    folder = tmp_path_factory.mktemp("frameworks")
    for name in ("torch", "oneflow"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    path = os.pathsep.join((str(folder), str(PROJECT)))
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps([words for words, _ in REFUSED])],
        cwd=PROJECT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[message for _, message in REFUSED])
def test_a_command_refuses_flags_before_a_framework_or_rank_starts(ends, number):
    code, printed = ends[number]
    assert code == 2
    assert printed.startswith("error: ") and REFUSED[number][1] in printed
    assert len(printed.splitlines()) <= 2


def test_a_refused_search_leaves_no_folder(ends):
    assert not (PROJECT / "runs" / "refused").exists()
