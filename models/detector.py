"""The detector: images -> floats on the device -> raw maps, by the graph of `graph.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.conv import Conv
from duet.models.graph import IMAGE, ModelSpec, coarsest_stride, plan_layers
from duet.models.heads.base import Head
from duet.utils.errors import UserError
from duet.utils.memory import require_memory
from duet.utils.text import count


class Detector(nn.Module):
    """A YOLOv5-family detector.

    Attributes:
        spec: the model YAML it was built from.
        model: its layers; the list's name is part of the public parameter names.
        head: the last layer.
        head_name: what the names of its parameters begin with.
        stride: pixels that image sides must be a multiple of: that of the coarsest map.
        fixed_size, takes_arrays: as a `Predictor`, it takes tensors of images of any size.
    """

    fixed_size: tuple[int, int] | None = None
    takes_arrays = False

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        layers = plan_layers(spec)
        self.spec = spec
        self.model = nn.ModuleList([layer.make() for layer in layers])
        for part in self.model.modules():
            if isinstance(part, Conv) and part.activation is not None:
                part.activation = spec.activation
        self.head_name = f"model.{len(layers) - 1}."
        self.stride = coarsest_stride(layers)
        self._attention = [
            (stride, cost.heads) for layer in layers for stride, cost in layer.costs if cost.heads
        ]
        self._densities = [layer.out_channels / layer.stride**2 for layer in layers]
        self._kept = {source for layer in spec.layers for source in layer.sources}

    @property
    def head(self) -> Head:
        return self.model[len(self.spec.layers) - 1]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if this machine's memory cannot hold the maps of images (B, 3, H, W).

        Counted are float32 maps: in training, which keeps them for the backward pass, those of all
        layers, else the largest one. A step takes several times as much. Attention counts with its
        matrix of all pairs of cells.
        """
        images, _, height, width = shape
        over = sum if trains else max
        maps = [density * height * width for density in self._densities]
        pairs = [heads * (height * width / stride**2) ** 2 for stride, heads in self._attention]
        numbers = over([*maps, *pairs])
        require_memory(
            int(4 * images * numbers),
            f"the model's maps of {count(images, 'image')} of {width} x {height} px",
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Map (B, 3, H, W) RGB in [0, 1], sides multiples of `stride`, to raw maps per level.

        A model of one channel makes grey of them; (B, 1, H, W) is taken as it is.
        """
        output: Any = images
        for output in self.run_layers(images):  # noqa: B007  the last one is the head's
            pass
        return output

    def run_layers(self, images: Tensor) -> Iterator[Any]:
        """Run the layers one after the other and yield what each returns."""
        if images.shape[1] != self.spec.image_channels:
            images = grey_of(images)
        mean, std = self.head.image_mean, self.head.image_std
        if mean is not None and std is not None:
            images = normalized(images, mean, std)
        outputs: dict[int, Tensor] = {IMAGE: images}
        for index, (module, layer) in enumerate(zip(self.model, self.spec.layers, strict=True)):
            output = module(*(outputs[source] for source in layer.sources))
            if index in self._kept:
                outputs[index] = output
            yield output

    def decode(self, raw: tuple[Tensor, ...]) -> Tensor:
        """Return all that is predicted, (B, N, ...), as `Head.decode` does."""
        return self.head.decode(raw)

    def decode_above(
        self, raw: tuple[Tensor, ...], confidence_threshold: float
    ) -> list[np.ndarray]:
        """Return the rows of `decode` above the threshold, (K, ...) float32 per image."""
        return self.head.decode_above(raw, confidence_threshold)

    def initialize(self, seed: int) -> None:
        """Draw all weights from the seed in NumPy, so that both backends start identical."""
        kept = nn.state_arrays(self)
        drawn, trained = draw_weights(kept, seed), dict(nn.named_parameters(self))
        state = {name: drawn[name] if name in trained else kept[name] for name in kept}
        for name, bias in self.head.initial_biases().items():
            name = self.head_name + name
            state[name] = state[name] + bias if self.head.draws_biases else bias
        nn.load_state_arrays(self, state)


def draw_weights(state: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Draw new values for convolutions and products among the named arrays; keep the rest.

    Weights and biases are uniform in +-1 / sqrt(fan-in), what both frameworks draw by default.
    BatchNorm starts as the framework made it: weight 1, bias 0, mean 0, variance 1.
    """
    bounds = {
        name.removesuffix("weight"): 1 / math.sqrt(np.prod(array.shape[1:]))
        for name, array in state.items()
        if name.endswith("weight") and array.ndim > 1
    }
    drawn = dict(state)
    for index, (name, array) in enumerate(state.items()):
        bound = bounds.get(name.removesuffix("weight").removesuffix("bias"))
        if bound is not None:
            generator = np.random.Generator(
                np.random.Philox(key=np.array([seed, index], np.uint64))
            )
            drawn[name] = generator.uniform(-bound, bound, array.shape).astype(np.float32)
    return drawn


def grey_of(images: Tensor) -> Tensor:
    """Map (B, 3, H, W) RGB to (B, 1, H, W), the luma of ITU-R BT.601."""
    red, green, blue = (images[:, index : index + 1] for index in range(3))
    return luma(red, green, blue)


def luma(red: Any, green: Any, blue: Any) -> Any:
    """Return the luma of colours, as tensors or numbers."""
    return red * 0.299 + green * 0.587 + blue * 0.114


def normalized(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return images (B, 3 or 1, H, W) less a mean, divided by a deviation, channel by channel.

    mean, std: of red, green and blue; a grey image has their luma.
    """
    if images.shape[1] == 1:
        return (images - luma(*mean)) / luma(*std)
    channels = [images[:, index : index + 1] for index in range(3)]
    return ops.cat([(x - m) / s for x, m, s in zip(channels, mean, std, strict=True)], dim=1)


def count_parameters(model: Detector, folded: bool = False) -> int:
    """Count the trainable numbers; folded: as public tables do, each BatchNorm merged into its
    convolution as one bias a channel."""
    sizes = {name: int(np.prod(p.shape)) for name, p in nn.named_parameters(model)}
    if not folded:
        return sum(sizes.values())
    return sum(size for name, size in sizes.items() if not name.endswith(".bn.weight"))


def require_image_size(image_size: int, stride: int, trains: bool) -> None:
    """Raise UserError unless a model of this stride takes --img.

    Training needs two cells a side: of one image, a map of one cell has a single value per channel,
    and BatchNorm no variance.
    """
    check_image_size(image_size, stride)
    if trains and image_size == stride:
        raise UserError(
            f"--img {image_size} is one cell of the model's stride {stride}, too few for the "
            f"statistics of BatchNorm in training; use {2 * stride} or more"
        )


def check_image_size(size: int, stride: int, flag: str = "--img") -> None:
    """Raise UserError unless a flag's size is a multiple of a model's stride."""
    if size % stride:
        fitting = -(-size // stride) * stride
        raise UserError(
            f"{flag} {size} is no multiple of the model's stride {stride}; use {fitting}"
        )
