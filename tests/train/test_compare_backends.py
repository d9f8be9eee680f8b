"""compare.py over both backends as they are: real training, equal work, a page."""

import json
import os
import subprocess
import sys

from tests.environments import BACKENDS, python_of
from tests.small import write_small_dataset, write_tiny_model


def compare_on_small_inputs(tmp_path, *flags):
    """compare.json of both backends at batch 4."""
    pythons = [f"--python={backend}={python_of(backend)}" for backend in BACKENDS]
    environment = {name: value for name, value in os.environ.items() if name != "YOLO_BACKEND"}
    done = subprocess.run(
        [
            sys.executable, "compare.py", *pythons, "--project", str(tmp_path), "--device", "cpu",
            "--data", str(write_small_dataset(tmp_path)), "--cfg", str(write_tiny_model(tmp_path)),
            "--img", "64", "--batch", "4", "--epochs", "1", "--rounds", "1", "--workers", "0",
            *flags,
        ],
        capture_output=True, text=True, timeout=400, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Seconds per epoch" in (tmp_path / "exp" / "compare.html").read_text()
    return json.loads((tmp_path / "exp" / "compare.json").read_text())


def test_both_backends_do_equal_work_and_are_compared(tmp_path):
    document = compare_on_small_inputs(tmp_path, "--warm-up-epochs", "1")
    torch, oneflow = (cell["runs"][0] for cell in document["cells"])
    assert torch["work"]["batches"] == 6 and torch["work"]["optimizer_steps"] > 0
    assert torch["work"]["batches_sha1"] == oneflow["work"]["batches_sha1"]
    assert "PyTorch" in torch["framework"] and "OneFlow" in oneflow["framework"]
    (pair,) = document["pairs"]
    assert torch["means"].keys() == {"compiled", "box_iou", "optimizer", "average", "colours"}
    assert torch["work"]["device"] == "cpu" and torch["work"]["cached"]["training"] == "none"
    assert pair["unequal"] == pair["means"] == [] and pair["ratio"]["median"] > 0
    assert pair["losses"]["batches"] == 6 and not pair["losses"]["diverged"]
    assert all(run["peak_host_mib"] > 100 for run in (torch, oneflow))
    for run in (torch, oneflow):
        assert set(run["load"]) == {"others"}
        assert 0 <= run["load"]["others"] < os.cpu_count()
        assert {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(run["variables"])
