"""Models whose weights follow from their names, as golden's README says, stored results, losses."""

import dataclasses
import json
import zlib
from functools import cache
from typing import Any

import numpy as np
import yaml

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.heads.base import LossSettings
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.project import PROJECT
from tests.environments import shared_path


@cache
def stored(name: str) -> Any:
    """Return the arrays of golden/NAME.npz."""
    return np.load(shared_path(f"golden/{name}.npz"))


@cache
def info(folder: str) -> dict[str, Any]:
    return json.loads(shared_path(f"golden/{folder}/info.json").read_text())


def drawn_input(shape: list[int]) -> np.ndarray:
    """Return images (B, 3, H, W) float32 in [0, 1)."""
    return generator("input").random(shape).astype(np.float32)


def drawn_model(
    yaml_name: str,
    gain: float,
    prefix: str = "",
    classes: int = 5,
    width: float = 0.125,
    depth: float | None = None,
) -> Detector:
    """Build a model of the project's YAML with weights by their names, in evaluation mode.

    depth: its depth multiple; None for that of the YAML.
    """
    document = yaml.safe_load((PROJECT / "models" / yaml_name).read_text())
    multiples = {"width_multiple": width, "depth_multiple": depth or document["depth_multiple"]}
    spec = parse_model({**document, **multiples}, classes)
    model = Detector(spec)
    state = nn.state_arrays(model)
    drawn = {name: draw(prefix, name, array, gain) for name, array in state.items()}
    nn.load_state_arrays(model, drawn)
    return nn.frozen_copy(model)


def generator(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=zlib.crc32(name.encode("ascii"))))


def draw(prefix: str, name: str, array: np.ndarray, gain: float) -> np.ndarray:
    """Return the values of one tensor of the state: what the end of its name asks for."""
    random, shape = generator(prefix + name), array.shape
    if name.endswith(("anchors", "dfl.conv.weight")):
        return array
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, array.dtype)
    if name.endswith("running_mean") or (name.endswith("bias") and array.ndim == 1):
        return (0.1 * random.standard_normal(shape)).astype(np.float32)
    if name.endswith("running_var") or array.ndim == 1:
        return (0.5 + random.random(shape)).astype(np.float32)
    if not name.endswith(".weight"):  # in_proj_weight of attention
        return (0.05 * random.standard_normal(shape)).astype(np.float32)
    deviation = np.sqrt(gain / np.prod(shape[1:]))
    return (random.standard_normal(shape) * deviation).astype(np.float32)


def loss_settings(image_size: int = 640, options: Any = (), **hyp: float) -> LossSettings:
    """Settings of the usual recipe with some other hyper-parameters, and some options."""
    found = dataclasses.replace(read_hyperparameters(DEFAULT_HYPERPARAMETERS), **hyp)
    return LossSettings(found.loss_gains(), image_size, **dict(options))


def cost_of(
    loss: Any, raw: Any, targets: Any, whole: Any = None, by: Any = ()
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The losses of `arrays_of`, and the gradients of the total.

    Args:
        raw: maps; arrays become variables.
        whole: the batch that this is a chunk of.
        by: variables; without, the raw maps.
    """
    raw = [autograd.variable(x) if isinstance(x, np.ndarray) else x for x in raw]
    terms = loss(raw, targets, whole)
    gradients = autograd.gradients(terms.total, list(by or raw))
    return arrays_of(terms), [ops.to_numpy(gradient) for gradient in gradients]


def assert_near(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Require values that differ by at most a fraction of the largest wanted one."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def numbers_by_layer(state: dict[str, list[int]]) -> dict[int, int]:
    """How many numbers each layer of a stored model has, by the shapes of its state."""
    numbers: dict[int, int] = {}
    for name, shape in state.items():
        layer = int(name.split(".")[1])
        numbers[layer] = numbers.get(layer, 0) + (int(np.prod(shape)) if shape else 0)
    return numbers


def arrays_of(terms: Any) -> dict[str, np.ndarray]:
    """The losses of `LossTerms` by name in their order, then "total"."""
    named = {**terms.by_name, "total": terms.total}
    return {name: ops.to_numpy(term) for name, term in named.items()}
