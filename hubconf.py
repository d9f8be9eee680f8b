"""Models for `torch.hub.load(FOLDER, NAME, source="local")`; see docs/en/api.md.

FOLDER is this file's folder. Nothing is downloaded.
"""

import duet
from duet.utils import errors
from duet.utils.processes.start import PACKAGES
from duet.utils.project import PROJECT

dependencies = list(PACKAGES)  # torch.hub reports missing ones


def custom(
    path: str | None = None,
    device: str | int | None = None,
    backend: str | None = None,
    **public: object,
):
    """Return a model with trained weights: `models/detect/hub.py::HubModel`.

    Args:
        path: a file listed in docs/en/weights.md; `path_or_model` is its name until 2022.
        device: "cpu"; "0" or 0 for the first GPU; None for a GPU if available.
        backend: "torch", "oneflow" or "onnx"; None for the default order, see the README.
        public: arguments of the public YOLOv5's entry points, see `_check_public`.
    """
    path = path or str(public.pop("path_or_model", "") or "")
    _check_public(public)
    weights = duet.begin([path], backend, _device_name(device))
    from duet.models.detect.hub import HubModel

    return HubModel(weights, _device_name(device))


def _entry(name: str):
    def make(
        path: str | None = None,
        pretrained: bool = True,
        classes: int | None = None,
        device: str | int | None = None,
        backend: str | None = None,
        **public: object,
    ):
        _check_public(public)
        if path is None and pretrained:
            path = _stored(name)
        weights = duet.begin([path] if path else [], backend, _device_name(device))
        from duet.models.detect.hub import HubModel, random_weights

        model = HubModel(weights or [random_weights(name, classes or 80)], _device_name(device))
        if classes not in (None, len(model.names)):
            raise errors.UserError(
                f"classes={classes}: the model in {path} has {len(model.names)}; omit classes"
            )
        return model

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""Return {name}.

    Args:
        path: weights file; None for `weights/{name}.safetensors` or `.pt` in this folder.
        pretrained: False for the initial weights of a training.
        classes: number of classes; None for that of the weights, or 80 without weights.
        device: as in `custom`.
        backend: as in `custom`.
        public: as in `custom`.
    """
    return make


yolov5n, yolov5s, yolov5m, yolov5l, yolov5x = (_entry(f"yolov5{size}") for size in "nsmlx")
yolov5n6, yolov5s6, yolov5m6, yolov5l6, yolov5x6 = (_entry(f"yolov5{size}6") for size in "nsmlx")


def _check_public(arguments: dict[str, object]) -> None:
    """Refuse arguments of the public entry points that cannot be honoured; ignore `_verbose`."""
    unknown = arguments.keys() - {"_verbose", "autoshape", "channels"}
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    if not arguments.get("autoshape", True):
        raise errors.UserError("autoshape=False: omit it; a model takes images, not tensors")
    if arguments.get("channels", 3) != 3:
        raise errors.UserError(f"channels={arguments['channels']}; accepted: 3")


def _device_name(device: str | int | None) -> str:
    return "" if device is None else str(device)


def _stored(name: str) -> str:
    """Return the user's file with a public model's weights; UserError if there is none."""
    files = [PROJECT / "weights" / f"{name}{suffix}" for suffix in (".safetensors", ".pt")]
    for file in files:
        if file.exists():
            return str(file)
    raise errors.UserError(
        f"{name}: weights not found, and nothing is downloaded; save them as {files[0]} or "
        f"{files[1].name}, or pass path=..., or pretrained=False for untrained weights"
    )
