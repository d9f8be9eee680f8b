"""A backend for inference only is complete in itself: a model runs, training is refused.

As a program, for a process under such a backend: `... NAME IN.npz OUT.npz MODEL.yaml`; IN has the
weights of the model and `images`, (B, 3, H, W) uint8; OUT has what it predicts. Prints a JSON
object.
"""

import json
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from duet import backend

backend.use()  # before the model is imported

from duet.backend import nn, ops, select  # noqa: E402
from duet.backend.contract import inference, training  # noqa: E402
from duet.models.detector import Detector  # noqa: E402
from duet.models.graph import read_model_yaml  # noqa: E402
from duet.utils.geometry.detections import SuppressionSettings  # noqa: E402
from tests.conformance import completeness  # noqa: E402
from tests.environments import python  # noqa: E402
from tests.small import write_small_model  # noqa: E402

UNUSABLE = ("optim.SGD", "autograd.variable", "dist.start", "amp.autocast", "fused.complete_iou",
    "multi_tensor.SGD", "nn.pack", "ops.bce_with_logits", "device.mark")  # fmt: skip


def predict(model: Detector, images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the decoded predictions: all rows, and those above a threshold in the first image."""
    frozen = nn.frozen_copy(nn.place(model, "cpu", "float32"))
    raw = frozen(ops.normalize_images(ops.tensor(images), "float32"))
    return {
        "decoded": ops.to_numpy(frozen.decode(raw)),
        "above": frozen.decode_above(raw, SuppressionSettings(0.01))[0],
    }


def main(name: str, weights: str, out: str, cfg: str) -> None:
    reported: dict[str, Any] = {"errors": {path: error_of(path) for path in UNUSABLE}}
    framework = select.FRAMEWORKS[name]
    for trains in (True, False):
        select.FRAMEWORKS[name] = framework._replace(trains=trains)
        reported["missing to train" if trains else "missing"] = completeness.missing(name)
    with np.load(weights) as file:
        arrays = dict(file)
    images, model = arrays.pop("images"), Detector(read_model_yaml(cfg))
    nn.load_state_arrays(model, arrays)
    np.savez(out, **predict(model, images))
    print(json.dumps(reported))


def error_of(path: str) -> str:
    """Return the message with which a look-up is refused."""
    namespace, _, name = path.partition(".")
    try:
        getattr(getattr(backend, namespace), name)
    except backend.BackendError as error:
        return str(error)
    return ""


class Run(NamedTuple):
    """What a process printed and computed, and what the backend under test computes."""

    name: str
    reported: dict[str, Any]
    found: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]


INFERENCE_ONLY = [name for name, row in select.FRAMEWORKS.items() if not row.trains]


@pytest.fixture(scope="module", params=INFERENCE_ONLY)
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    folder = tmp_path_factory.mktemp("inference_only")
    cfg, weights, out = write_small_model(folder), folder / "weights.npz", folder / "out.npz"
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 96)).astype(np.uint8)
    model = Detector(read_model_yaml(cfg))
    model.initialize(seed=0)
    np.savez(weights, images=images, **nn.state_arrays(model))
    name, module = request.param, "tests.conformance.test_inference_only"
    done = python("-m", module, name, weights, out, cfg, YOLO_BACKEND=name)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        found = dict(arrays)
    return Run(name, json.loads(done.stdout), found, predict(model, images))


def test_inference_backend_fulfils_its_contract(run: Run) -> None:
    assert run.reported["missing"] == []


def test_inference_backend_lacks_all_training_promises(run: Run) -> None:
    promised = {
        f"{module}.{name} is missing"
        for module, owner in training.MODULES.items()
        for name in completeness.members(owner)
        if name not in completeness.members(inference.MODULES.get(module, object))
    }
    assert {line for line in run.reported["missing to train"] if line.count(".") == 1} == promised


def test_model_runs_on_inference_backend(run: Run) -> None:
    assert len(run.wanted["above"]) == 18  # the cells of the coarsest level, three anchors each
    for name, wanted in run.wanted.items():
        # Float32 sums in another order, through some 60 layers.
        np.testing.assert_allclose(run.found[name], wanted, rtol=1e-4, atol=1e-4, err_msg=name)


def test_training_is_refused_by_name_with_the_next_step(run: Run) -> None:
    for path, message in run.reported["errors"].items():
        assert message == (
            f"backend {run.name!r} is inference-only and has no {path}; "
            "choose one that supports training: torch, oneflow"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
