"""Which runs a comparison has, in which order, and which of them are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple


class Variant(NamedTuple):
    """A set of train.py's flags.

    Attributes:
        flags: given to train.py as they are. An unknown one fails the cell, not the comparison.
        changes: names in work.json that it changes on purpose, besides the settings of its flags.
    """

    flags: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def by_design(self) -> set[str]:
        """All names in work.json that may differ from a run without these flags."""
        flags = (flag[2:].replace("-", "_") for flag in self.flags if flag.startswith("--"))
        return {*self.changes, *(f"settings.{flag}" for flag in flags)}


PLAIN = "plain"
VARIANTS = {
    PLAIN: Variant(),
    "fused": Variant(("--bbox_iou_optim", "--multi_tensor_optimizer")),
    "fused-loss": Variant(("--bbox_iou_optim",)),
    "fused-update": Variant(("--multi_tensor_optimizer",)),
    "compile": Variant(("--compile",)),
    "bf16": Variant(("--amp", "bf16"), ("precision",)),
    # Its loss scale may skip a step.
    "fp16": Variant(("--amp", "fp16"), ("precision", "optimizer_steps")),
    "channels-last": Variant(("--layout", "channels-last"), ("layout",)),
    "cache": Variant(("--cache", "ram"), ("cached.training", "cached.validation")),
    "no-loader-processes": Variant(("--workers", "0")),
}
# What --ablate switches on, one option at a time; "fused" has two.
ABLATION = tuple(name for name in VARIANTS if name != "fused")


@dataclass(frozen=True)
class Cell:
    """One column of runs: who trains, with which flags, with how many images per batch."""

    side: str  # a backend, or another trainer of `benchmarks.beside`
    variant: str
    batch: int

    @property
    def name(self) -> str:
        """As "torch-plain-b16", for folders and messages."""
        return f"{self.side}-{self.variant}-b{self.batch}"


class Turn(NamedTuple):
    """One run of a cell."""

    cell: Cell
    round: int  # from 1

    @property
    def name(self) -> str:
        return f"{self.cell.name}-round{self.round}"


class Pair(NamedTuple):
    """Two cells to compare: the candidate's time is divided by the reference's."""

    reference: Cell
    candidate: Cell

    @property
    def by_design(self) -> set[str]:
        """Names in work.json in which the two are meant to differ."""
        if self.reference.variant == self.candidate.variant:
            return set()
        return set().union(*(VARIANTS[cell.variant].by_design for cell in self))


def make_cells(
    backends: Sequence[str], variants: Sequence[str], batches: Sequence[int]
) -> list[Cell]:
    """Return all cells; those that are compared across backends follow one another."""
    each = product(batches, variants, backends)
    return [Cell(side, variant, batch) for batch, variant, side in each]


def turns(cells: Sequence[Cell], rounds: int) -> Iterator[Turn]:
    """Yield A B A B: every cell once per round, so a slower machine affects all cells alike."""
    for number in range(1, rounds + 1):
        for cell in cells:
            yield Turn(cell, number)


def make_pairs(cells: Sequence[Cell]) -> list[Pair]:
    """Pair each backend and each variant with the first one, for each batch size."""
    pairs, first = [], cells[0]
    for batch in dict.fromkeys(cell.batch for cell in cells):
        alike = [cell for cell in cells if cell.batch == batch]
        pairs += [Pair(replace(x, side=first.side), x) for x in alike if x.side != first.side]
        pairs += [Pair(replace(x, variant=first.variant), x)
            for x in alike if x.variant != first.variant]  # fmt: skip
    return pairs
