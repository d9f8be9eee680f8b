"""Which runs a comparison has, in which order, and which of them are compared.

Before: `settings.py` reads the flags. After: `runner.py` runs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from utils.errors import UserError


@dataclass(frozen=True)
class Variant:
    """A set of train.py's flags.

    Attributes:
        name: in tables and folder names.
        flags: given to train.py as they are. An unknown flag makes the cell fail, not the
            comparison.
        changes: names in work.json that it changes on purpose, besides the settings of its flags.
    """

    name: str
    flags: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def settings(self) -> set[str]:
        """The names under which work.json holds the settings of the flags."""
        names = (flag.lstrip("-").replace("-", "_") for flag in self.flags if flag[:2] == "--")
        return {f"settings.{name}" for name in names}

    @property
    def by_design(self) -> set[str]:
        """All names in work.json that may differ from a run without these flags."""
        return self.settings | set(self.changes)


PLAIN, EXTERNAL = "plain", "external"
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(PLAIN),
        Variant("fused", ("--bbox_iou_optim", "--multi_tensor_optimizer")),
        Variant("fused-loss", ("--bbox_iou_optim",)),
        Variant("fused-update", ("--multi_tensor_optimizer",)),
        Variant("compile", ("--compile",)),
        Variant("bf16", ("--amp", "bf16"), ("precision",)),
        # Its loss scale may skip a step.
        Variant("fp16", ("--amp", "fp16"), ("precision", "optimizer_steps")),
        Variant("channels-last", ("--layout", "channels-last"), ("layout",)),
        Variant("cache", ("--cache", "ram"), ("cached.training", "cached.validation")),
        Variant("no-loader-processes", ("--workers", "0")),
    )
}
# What --ablate switches on, one option at a time; "fused" has two.
ABLATION = (PLAIN, *(name for name in VARIANTS if name not in (PLAIN, "fused")))


@dataclass(frozen=True)
class Cell:
    """One column of runs: who trains, with which flags, with how many images per batch."""

    side: str  # a backend, or the name of an external trainer
    variant: str
    batch: int
    external: bool = False

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
        variants = {self.reference.variant, self.candidate.variant}
        if len(variants) == 1 or self.candidate.external:
            return set()
        return set().union(*(VARIANTS[name].by_design for name in variants))


def make_cells(
    backends: Sequence[str],
    variants: Sequence[str],
    batches: Sequence[int],
    externals: Sequence[str],
) -> list[Cell]:
    """Return all cells; those that are compared across backends follow one another."""
    cells = []
    for batch in batches:
        cells += [Cell(side, variant, batch) for variant in variants for side in backends]
        cells += [Cell(name, EXTERNAL, batch, external=True) for name in externals]
    return cells


def turns(cells: Sequence[Cell], rounds: int) -> Iterator[Turn]:
    """Yield A B A B: every cell once per round, so a slower machine affects all cells alike."""
    for number in range(1, rounds + 1):
        for cell in cells:
            yield Turn(cell, number)


def make_pairs(cells: Sequence[Cell]) -> list[Pair]:
    """Pair each backend with the first, each variant with the first, externals with the first cell.

    Only cells of one batch size are paired.
    """
    pairs = []
    for batch in dict.fromkeys(cell.batch for cell in cells):
        own = [cell for cell in cells if cell.batch == batch and not cell.external]
        first = own[0]
        for cell in own:
            if cell.side != first.side:
                pairs.append(Pair(Cell(first.side, cell.variant, batch), cell))
        for cell in own:
            if cell.variant != first.variant:
                pairs.append(Pair(Cell(cell.side, first.variant, batch), cell))
        pairs += [Pair(first, cell) for cell in cells if cell.batch == batch and cell.external]
    return pairs


def known_variant(name: str) -> Variant:
    """Return the variant of a name; UserError for an unknown name."""
    if name not in VARIANTS:
        raise UserError(f"--variants {name}: unknown; accepted: {', '.join(VARIANTS)}")
    return VARIANTS[name]
