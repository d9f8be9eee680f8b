"""The detector: runs the layers planned by `graph.py` from images to raw maps."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from duet import backend
from duet.backend import nn, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.blocks.yolov5 import Conv
from duet.models.graph import IMAGE, ModelSpec, coarsest_stride, plan_layers
from duet.models.heads.base import Head
from duet.utils.errors import UserError
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.memory import require_memory
from duet.utils.text import count

Value = TypeVar("Value", Tensor, float)


class Detector(nn.Module):
    """A YOLOv5-family detector.

    Attributes:
        spec: the model YAML it was built from.
        model: the layers; the attribute name is part of the public parameter names.
        head: the last layer.
        head_name: prefix of the head's parameter names.
        stride: stride of the coarsest map; image sides must be a multiple of it.
        fixed_size, takes_arrays: see `Predictor`; it takes tensors of any image size.
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
        """Raise UserError if the maps for images (B, 3, H, W) do not fit into memory.

        It counts float32 maps: of all layers in training, which keeps them for the backward pass,
        else the largest one. A step takes several times as much. Attention counts its matrix of all
        pairs of cells.
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
        """Map (B, 3, H, W) RGB in [0, 1] with sides divisible by `stride` to raw maps per level.

        A one-channel model converts them to grey, and accepts (B, 1, H, W) unchanged.
        """
        output: Any = images
        for output in self.run_layers(images):  # noqa: B007  the last one is the head's output
            pass
        return output

    def run_layers(self, images: Tensor) -> Iterator[Any]:
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
        """Return all predictions, (B, N, ...); see `Head.decode`."""
        return self.head.decode(raw)

    def decode_above(
        self, raw: tuple[Tensor, ...], settings: SuppressionSettings
    ) -> list[np.ndarray]:
        """Return the rows of `decode` that can become detections, (K, ...) float32 per image."""
        return self.head.decode_above(raw, settings)

    def initialize(self, seed: int) -> None:
        """Draw all weights in NumPy from the seed, so that both backends start identically."""
        kept = nn.state_arrays(self)
        drawn, trained = draw_weights(kept, seed), dict(nn.named_parameters(self))
        state = {name: drawn[name] if name in trained else kept[name] for name in kept}
        for name, bias in self.head.initial_biases().items():
            name = self.head_name + name
            state[name] = state[name] + bias if self.head.draws_biases else bias
        nn.load_state_arrays(self, state)


def draw_weights(state: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Draw new values for convolutions and linear layers among the named arrays; keep the rest.

    Weights and biases are uniform in +-1 / sqrt(fan-in), the default of both frameworks. BatchNorm
    keeps its initial values: weight 1, bias 0, mean 0, variance 1.
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
    """Map (B, 3, H, W) RGB to (B, 1, H, W) luma (ITU-R BT.601)."""
    red, green, blue = (images[:, index : index + 1] for index in range(3))
    return luma(red, green, blue)


def luma(red: Value, green: Value, blue: Value) -> Value:
    """Return the luma of colours given as tensors or numbers."""
    return red * 0.299 + green * 0.587 + blue * 0.114


def normalized(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Normalize images (B, 3 or 1, H, W) by mean and standard deviation per channel.

    mean, std: red, green and blue; for grey images their luma is used.
    """
    if images.shape[1] == 1:
        return (images - luma(*mean)) / luma(*std)
    channels = [images[:, index : index + 1] for index in range(3)]
    return ops.cat([(x - m) / s for x, m, s in zip(channels, mean, std, strict=True)], dim=1)


def count_parameters(model: Detector) -> int:
    """Return the number of trainable parameters."""
    return sum(int(np.prod(parameter.shape)) for _, parameter in nn.named_parameters(model))


def require_image_size(image_size: int, stride: int, trains: bool) -> None:
    """Raise UserError if --img does not fit the model's stride.

    Training needs two cells per side: with one image, a map of one cell has a single value per
    channel and BatchNorm no variance.
    """
    check_image_size(image_size, stride)
    if trains and image_size == stride:
        raise UserError(
            f"--img {image_size} equals the model's stride {stride}: a single cell is too little "
            f"for BatchNorm statistics in training; use {2 * stride} or more"
        )


def check_image_size(size: int, stride: int, flag: str = "--img") -> None:
    """Raise UserError unless a flag's size is a multiple of a model's stride."""
    if size % stride:
        fitting = -(-size // stride) * stride
        raise UserError(
            f"{flag} {size} is not a multiple of the model's stride {stride}; use {fitting}"
        )


def images_to_tensor(
    images: np.ndarray, device: str, dtype: str = "float32", channels_last: bool | None = None
) -> Tensor:
    """Convert (B, 3, H, W) uint8 to a float tensor of the same shape in [0, 1].

    Layers keep the layout of their input; None selects the faster one for the device.
    """
    if channels_last is None:
        channels_last = gains_from_channels_last(device, dtype)
    pixels = images.transpose(0, 2, 3, 1)
    if channels_last and pixels.flags.c_contiguous:  # as `np.stack` leaves decoded images
        return ops.normalize_images(ops.tensor(pixels, device).permute(0, 3, 1, 2), dtype, True)
    return ops.normalize_images(ops.tensor(images, device), dtype, channels_last)


def gains_from_channels_last(device: str, dtype: str) -> bool:
    """Return whether convolutions in a dtype are known to be faster channels-last on a device.

    On a CPU all dtypes but float64, measured by benchmarks/train_step.py; on a GPU half precision,
    because tensor cores read adjacent channels.
    """
    if not backend.device.supports("channels_last"):
        return False
    return dtype != "float64" if device == CPU else dtype in ("bfloat16", "float16")
