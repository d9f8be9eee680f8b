"""A process under a backend for inference only: what it lacks, and what it computes.

`python -m tests.conformance.inference_run NAME IN.npz OUT.npz MODEL.yaml`: NAME is such a backend;
IN has the weights of the model and `images`, (B, 3, H, W) uint8; OUT has the decoded predictions.
Prints a JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from duet import backend
from duet.backend import select
from duet.utils.geometry.detections import SuppressionSettings
from tests.conformance import completeness

UNUSABLE = ("optim.SGD", "autograd.variable", "dist.start", "amp.autocast", "fused.complete_iou",
    "multi_tensor.SGD", "nn.pack", "ops.bce_with_logits", "device.mark")  # fmt: skip


def error_of(path: str) -> str:
    """Return the message with which a look-up is refused."""
    namespace, _, name = path.partition(".")
    try:
        getattr(getattr(backend, namespace), name)
    except backend.BackendError as error:
        return str(error)
    return ""


def predict(weights: dict[str, np.ndarray], cfg: str) -> dict[str, np.ndarray]:
    """Return the decoded predictions: all rows, and those above a threshold in the first image."""
    from duet.backend import nn, ops
    from duet.models.detector import Detector
    from duet.models.graph import read_model_yaml

    images = ops.normalize_images(ops.tensor(weights.pop("images")), "float32")
    model = Detector(read_model_yaml(cfg))
    nn.load_state_arrays(model, weights)
    model = nn.frozen_copy(nn.place(model, "cpu", "float32"))
    raw = model(images)
    return {
        "decoded": ops.to_numpy(model.decode(raw)),
        "above": model.decode_above(raw, SuppressionSettings(0.01))[0],
    }


def main(name: str, weights: str, out: str, cfg: str) -> None:
    reported: dict[str, Any] = {}
    framework = select.FRAMEWORKS[name]
    for trains in (True, False):
        select.FRAMEWORKS[name] = framework._replace(trains=trains)
        reported["missing to train" if trains else "missing"] = completeness.missing(name)
    with np.load(weights) as arrays:
        np.savez(out, **predict(dict(arrays), cfg))
    reported["errors"] = {path: error_of(path) for path in UNUSABLE}
    print(json.dumps(reported))


if __name__ == "__main__":
    main(*sys.argv[1:])
