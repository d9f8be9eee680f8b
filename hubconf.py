"""The models for `torch.hub.load(FOLDER, NAME, source="local")`; docs/en/api.md shows how.

FOLDER is the folder of this file. Nothing is downloaded.
"""

from __future__ import annotations

import duet
from duet.utils import errors
from duet.utils.processes.start import PACKAGES
from duet.utils.project import PROJECT

dependencies = list(PACKAGES)  # torch.hub names those that are missing


def custom(path: str, device: str | int | None = None, backend: str | None = None):
    """Return a model with trained weights: `models/detection/hub.py::HubModel`.

    Args:
        path: a file that docs/en/weights.md lists.
        device: "cpu"; "0", or 0, for the first GPU; None for a GPU if there is one.
        backend: "torch", "oneflow" or "onnx"; None for the order of choice that the README gives.
    """
    weights = duet.begin([path], backend, _device_name(device))
    from duet.models.detection.hub import HubModel

    return HubModel(weights, _device_name(device))


def _entry(name: str):
    """Return the function with which `torch.hub` makes a public model."""

    def make(
        path: str | None = None,
        pretrained: bool = True,
        classes: int | None = None,
        device: str | int | None = None,
        backend: str | None = None,
    ):
        return _named(name, path, pretrained, classes, device, backend)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Return {name}.

    Args:
        path: a file with weights; None for `weights/{name}.safetensors`, or `.pt`, in this folder.
        pretrained: False for weights as training starts from them.
        classes: how many the model knows; None for what the weights know, and for 80 without any.
        device: as in `custom`.
        backend: as in `custom`.
    """
    return make


yolov5n, yolov5s, yolov5m, yolov5l, yolov5x = (_entry(f"yolov5{size}") for size in "nsmlx")
yolov5n6, yolov5s6, yolov5m6, yolov5l6, yolov5x6 = (_entry(f"yolov5{size}6") for size in "nsmlx")


def _device_name(device: str | int | None) -> str:
    return "" if device is None else str(device)


def _named(
    name: str,
    path: str | None,
    pretrained: bool,
    classes: int | None,
    device: str | int | None,
    backend: str | None,
):
    """Return a public model with the weights of a file, or with initial weights."""
    if path is None and pretrained:
        path = _stored(name)
    weights = duet.begin([path] if path else [], backend, _device_name(device))
    from duet.models.detection.hub import HubModel, random_weights

    model = HubModel(weights or [random_weights(name, classes or 80)], _device_name(device))
    if classes not in (None, len(model.names)):
        raise errors.UserError(
            f"classes={classes}: the model of {path} has {len(model.names)}; leave classes out"
        )
    return model


def _stored(name: str) -> str:
    """Return the file in which a user has put a public model's weights; UserError for none."""
    files = [PROJECT / "weights" / f"{name}{suffix}" for suffix in (".safetensors", ".pt")]
    for file in files:
        if file.exists():
            return str(file)
    raise errors.UserError(
        f"{name}: nothing is downloaded; put its weights into {files[0]}, or {files[1].name} "
        "beside it, or name them by path=..., or give pretrained=False for weights to train"
    )
