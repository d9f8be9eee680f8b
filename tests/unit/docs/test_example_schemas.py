"""docs/examples as shellcheck and Kubernetes' own types see them; .venv/torch has the linters."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes_objects import disagreements, documents, kubernetes_types
from utils.files.project import PROJECT

SCRIPT = PROJECT / "docs" / "examples" / "train.sbatch"


@pytest.mark.skipif(
    sys.platform == "linux" and platform.machine() != "x86_64", reason="ShellCheck has no wheel"
)
def test_shellcheck_finds_nothing_in_the_slurm_script():
    program = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([program, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_kubernetes_knows_every_key_of_the_job_and_its_type(monkeypatch):
    schema = kubernetes_types(monkeypatch)
    for kind, document in documents().items():
        assert disagreements(document, schema[kind], kind) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda spec: spec.update(restart="Never"), "JobSpec has no restart"),
        (lambda spec: spec.update(completions="2"), "Job.spec.completions: '2' is no int"),
        (lambda spec: spec.pop("template"), "Job.spec: template is missing"),
        (lambda spec: spec["template"]["spec"]["containers"][0]["env"].append({"value": "1"}),
         "Job.spec.template.spec.containers.0.env.6: name is missing"),
    ],
)  # fmt: skip
def test_the_schema_finds_mistakes(monkeypatch, change, told):
    job = documents()["Job"]
    change(job["spec"])
    assert told in "\n".join(disagreements(job, kubernetes_types(monkeypatch)["Job"], "Job"))
