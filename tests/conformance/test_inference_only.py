"""A backend for inference only is complete in itself: a model runs, training is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from duet.backend import nn, ops
from duet.backend.contract import inference, training
from duet.backend.select import FRAMEWORKS
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.project import PROJECT
from tests.conformance import completeness
from tests.small import write_small_model


class Run(NamedTuple):
    """What a process printed and computed, and what the backend under test computes."""

    name: str
    reported: dict[str, Any]
    found: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=[name for name, row in FRAMEWORKS.items() if not row.trains])
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    folder = tmp_path_factory.mktemp("inference_only")
    cfg, weights, out = write_small_model(folder), folder / "weights.npz", folder / "out.npz"
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 96)).astype(np.uint8)
    model = Detector(read_model_yaml(cfg))
    model.initialize(seed=0)
    np.savez(weights, images=images, **nn.state_arrays(model))
    name, module = request.param, "tests.conformance.inference_run"
    command = [sys.executable, "-m", module, name, weights, out, cfg]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        found = dict(arrays)
    return Run(name, json.loads(done.stdout), found, predict(model, images))


def predict(model: Detector, images: np.ndarray) -> dict[str, np.ndarray]:
    frozen = nn.frozen_copy(nn.place(model, "cpu", "float32"))
    raw = frozen(ops.normalize_images(ops.tensor(images), "float32"))
    return {
        "decoded": ops.to_numpy(frozen.decode(raw)),
        "above": frozen.decode_above(raw, SuppressionSettings(0.01))[0],
    }


def test_it_lacks_nothing_of_its_contract(run: Run) -> None:
    assert run.reported["missing"] == []


def test_it_would_lack_all_that_trains_if_it_said_that_it_trains(run: Run) -> None:
    promised = {
        f"{module}.{name} is missing"
        for module, owner in training.MODULES.items()
        for name in completeness.members(owner)
        if name not in completeness.members(inference.MODULES.get(module, object))
    }
    assert {line for line in run.reported["missing to train"] if line.count(".") == 1} == promised


def test_a_model_runs_on_it(run: Run) -> None:
    assert len(run.wanted["above"]) == 18  # the cells of the coarsest level, three anchors each
    for name, wanted in run.wanted.items():
        # Float32 sums in another order, through some 60 layers.
        np.testing.assert_allclose(run.found[name], wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_trains_is_refused_by_name_with_the_next_step(run: Run) -> None:
    for path, message in run.reported["errors"].items():
        assert message == (
            f"backend {run.name!r} is inference-only and has no {path}; "
            "choose one that supports training: torch, oneflow"
        )
