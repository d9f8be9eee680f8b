"""Bytes, seconds and memory of training on many devices, by arithmetic: `scaling.py` prints it.

What is assumed: gradients are summed by a ring of the devices of a machine, then by a ring of the
machines, in which each device exchanges its part of the sum (Patarasuk and Yuan 2009: a ring moves
the least bytes). A message takes latency + bytes / bandwidth. Exchange and computation do not
overlap, which is the worst case. Not modelled: devices that are slower than others, traffic of
other jobs, congestion, reading of the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOAT = 4  # bytes
# Sums over all ranks that synchronised BatchNorm takes for a layer: mean (with the count), variance
# and, backward, the gradients of both (backend/sync_batch_norm.py). PyTorch on GPUs gathers once
# and sums once instead.
SYNC_SUMS = 4
# Exchanges of a few numbers each batch: the loss's counts, its values, and whether to stop, asked
# as arrays whose lengths are gathered first.
SHORT_EXCHANGES = 4
# The most that a validated image leaves (utils/evaluation/progress.py): three int64, and 300 boxes
# of five float32 and an int64.
BYTES_A_VALIDATED_IMAGE = 3 * 8 + 300 * (5 * FLOAT + 8)


@dataclass(frozen=True)
class Network:
    """The sizes of a model."""

    parameters: int  # trained numbers
    state_bytes: int  # parameters and buffers, as a checkpoint holds them
    norm_layers: int
    norm_channels: int  # of all BatchNorm layers together
    convolution_outputs: float  # numbers that the convolutions give, for one pixel of the image


@dataclass(frozen=True)
class Link:
    """The link of one device or machine to the next; both directions at once."""

    latency: float  # seconds a message
    bandwidth: float  # bytes a second, each way


@dataclass(frozen=True)
class Traffic:
    """One sum over all devices: bytes that each link carries each way, and the time."""

    inside: float  # of a device, to its neighbour in the machine
    between: float  # of a machine, to the next
    seconds: float


@dataclass(frozen=True)
class Constants:
    """What was measured of a machine and a framework."""

    link: Link  # between two ranks
    activation_factor: float  # numbers kept for the backward pass, for each of a convolution
    process: float  # bytes that a process needs beside what `memory` counts
    joined: float  # and that it needs more when it works with others


@dataclass(frozen=True)
class Memory:
    """The bytes that one rank needs."""

    trained: int  # weights, EMA, gradients, momentum
    buckets: int  # in which gradients travel; none with one rank
    activations: float

    @property
    def total(self) -> float:
        return self.trained + self.buckets + self.activations


def ring_bytes(size: float, members: int) -> float:
    """Return the bytes that each member of a ring sends, and receives, to sum `size` bytes."""
    return 2 * (members - 1) / members * size


def ring_seconds(size: float, members: int, link: Link) -> float:
    """Return the time of such a sum: 2 (members - 1) messages, one after the other."""
    return 2 * (members - 1) * link.latency + ring_bytes(size, members) / link.bandwidth


def sum_over(size: float, devices: int, a_machine: int, inside: Link, between: Link) -> Traffic:
    """Return the traffic of summing `size` bytes; a machine has at most `a_machine` devices."""
    near = min(devices, a_machine)
    machines = devices // near
    seconds = ring_seconds(size, near, inside) + ring_seconds(size, machines, between)
    return Traffic(ring_bytes(size, near), ring_bytes(size, machines), seconds)


def gradient_bytes(network: Network) -> int:
    """Return the bytes summed once an update, however many batches it accumulates."""
    return FLOAT * network.parameters


def sync_batch_norm_bytes(network: Network) -> int:
    """Return the bytes that --sync-bn sums in addition, each batch."""
    return SYNC_SUMS * FLOAT * network.norm_channels


def sync_batch_norm_seconds(
    network: Network, devices: int, a_machine: int, inside: Link, between: Link
) -> float:
    """Return the time of the --sync-bn sums of a batch: many small ones, one after the other."""
    sums = SYNC_SUMS * network.norm_layers
    size = sync_batch_norm_bytes(network) / sums
    return sums * sum_over(size, devices, a_machine, inside, between).seconds


def short_exchanges_seconds(devices: int, a_machine: int, inside: Link, between: Link) -> float:
    """Return the time of the short exchanges of a batch, each that of a sum of 0 bytes."""
    return SHORT_EXCHANGES * sum_over(0, devices, a_machine, inside, between).seconds


def validation_bytes(images: int, devices: int) -> float:
    """Return the bytes that each rank receives at most, once a validation."""
    return images * BYTES_A_VALIDATED_IMAGE * (devices - 1) / devices


def memory(
    network: Network,
    images: int,
    side: int,
    devices: int,
    activation_factor: float,
    momenta: int = 1,
) -> Memory:
    """Return the memory of a rank that trains on `images` a batch in float32.

    Args:
        side: of the square images, pixels.
        activation_factor: as in `Constants`.
        momenta: of the optimizer, for each parameter: 1 of SGD, 2 of Adam.
    """
    gradients = gradient_bytes(network)
    kept = activation_factor * network.convolution_outputs * side * side * images
    return Memory(
        trained=2 * network.state_bytes + (1 + momenta) * gradients,
        buckets=gradients if devices > 1 else 0,
        activations=FLOAT * kept,
    )


def checkpoint_bytes(network: Network, momenta: int = 1) -> int:
    """Return the bytes of weights, EMA and momenta; the header's kilobytes are left out."""
    return 2 * network.state_bytes + momenta * FLOAT * network.parameters


def fit(network: Network, trainings: Sequence[Mapping[str, Any]]) -> Constants:
    """Fit constants to three trainings of a network: one rank, twice the images, two ranks."""
    one, two, pair = trainings
    images, side = one["images"], one["img"]
    factor = (two["memory"] - one["memory"]) / memory(network, images, side, 1, 1.0).activations
    small, *_, large = pair["sums"]
    seconds = large["seconds"] - small["seconds"]
    alone = one["memory"] - memory(network, images, side, 1, factor).total
    return Constants(
        Link(small["seconds"] / 2, ring_bytes(large["bytes"] - small["bytes"], 2) / seconds),
        factor,
        alone,
        pair["memory"] - memory(network, images, side, 2, factor).total - alone,
    )
