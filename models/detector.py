"""The detector: images -> raw maps, the graph of `graph.py` with its weights.

Before: the training step or the validation. After: its last layer is a head, whose loss or
decoding takes what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from backend import nn
from backend.contract import Tensor
from models.graph import IMAGE, ModelSpec, build_layers
from models.heads.base import Head
from models.initial_weights import draw_weights


class Detector(nn.Module):
    """A YOLOv5-family detector.

    Attributes:
        spec: the model YAML it was built from.
        model: its layers; the list's name is part of the public parameter names.
        head: the last layer.
        head_name: what the names of its parameters begin with.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        layers = build_layers(spec)
        self.spec = spec
        self.model = nn.ModuleList([layer.module for layer in layers])
        self.head_name = f"model.{len(layers) - 1}."
        self._kept = {source for layer in spec.layers for source in layer.sources}

    @property
    def head(self) -> Head:
        return self.model[len(self.spec.layers) - 1]

    @property
    def stride(self) -> int:
        """Pixels that image sides must be a multiple of."""
        return max(self.head.strides)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, H, W) RGB in [0, 1], sides multiples of `stride` -> raw maps per level."""
        output: Any = images
        for output in self.run_layers(images):  # noqa: B007  the last one is the head's
            pass
        return output

    def run_layers(self, images: Tensor) -> Iterator[Any]:
        """Run the layers one after the other and yield what each returns."""
        outputs: dict[int, Tensor] = {IMAGE: images}
        for index, (module, layer) in enumerate(zip(self.model, self.spec.layers, strict=True)):
            output = module(*(outputs[source] for source in layer.sources))
            if index in self._kept:
                outputs[index] = output
            yield output

    def decode(self, raw: tuple[Tensor, ...]) -> Tensor:
        """Raw maps -> (B, N, ...): all that is predicted, as `Head.decode` returns it."""
        return self.head.decode(raw)

    def decode_above(
        self, raw: tuple[Tensor, ...], confidence_threshold: float
    ) -> list[np.ndarray]:
        """Raw maps -> (K, ...) float32 an image: the rows of `decode` above the threshold."""
        return self.head.decode_above(raw, confidence_threshold)

    def initialize(self, seed: int) -> None:
        """Draw all weights from the seed in NumPy, so that both backends start identical."""
        state = draw_weights(nn.state_arrays(self), seed)
        for name, bias in self.head.initial_biases().items():
            name = self.head_name + name
            state[name] = state[name] + bias
        nn.load_state_arrays(self, state)


def count_parameters(model: Detector, folded: bool = False) -> int:
    """Trainable numbers; folded: as the public tables count, each BatchNorm merged into its
    convolution as one bias a channel."""
    sizes = {name: int(np.prod(p.shape)) for name, p in nn.named_parameters(model)}
    if not folded:
        return sum(sizes.values())
    return sum(size for name, size in sizes.items() if not name.endswith(".bn.weight"))
