"""Dropout: in training each number is left out at random, and the others count more.

The draws are made on the host, as a function of the seed, the number of the batch and the place of
an image in it: the same on both backends, on any number of ranks, in pieces and after any resume.
Source: Srivastava et al. 2014.
"""

from __future__ import annotations

from backend import ops
from backend.contract import Tensor
from models.heads.base import PassImages
from utils.data.randomness import dropout_generator


class Dropout:
    """Multiplies (B, N) by 0 with a probability, else by 1 / (1 - probability).

    Args:
        probability: from 0 to below 1.
        size: N.
    """

    def __init__(self, probability: float, size: int) -> None:
        self.probability, self.size = probability, size
        self.factors: Tensor | None = None  # of the images whose turn it is

    def draw(self, images: PassImages, like: Tensor) -> None:
        """Draw for the images of the next pass; like: a tensor of its device and dtype."""
        generator = dropout_generator(images.seed, images.batch_number)
        drawn = generator.random((images.batch_size, self.size))[images.places]
        factors = (drawn >= self.probability) / (1 - self.probability)
        self.factors = ops.tensor(factors.astype(ops.dtype_of(like)), ops.device_of(like))

    def __call__(self, x: Tensor) -> Tensor:
        """Leave numbers out; all are kept before the first draw."""
        return x if self.factors is None else x * self.factors
