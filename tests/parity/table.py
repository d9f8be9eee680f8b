"""What `python -m tests.parity` compares, each row with its tolerance and why, and the table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Settings:
    """One comparison; plain values, since they travel as JSON."""

    data: str  # dataset YAML
    cfg: str  # model YAML
    image_size: int
    batch_size: int
    steps: int  # optimizer steps
    nudge: float = 0.0  # added to one weight: what a disagreement looks like


DTYPES = ("float64", "float32")


class Row(NamedTuple):
    """Tensors compared together; the worst of them is shown."""

    pattern: str  # of the rows' names, as `fnmatch` reads it
    tolerance: float  # largest difference over the largest magnitude, in each tensor
    floor: float = 0.0  # magnitudes below this count as this


# Rows that a backend only takes part in, or computes by comparing and choosing.
EXACT = (Row("weights", 0.0), Row("batches", 0.0), Row("nms of drawn boxes", 0.0))

# Biases start at zero: what a parameter holds or has changed by, whichever is more, is its scale.
PARAMETER_SCALE = 0.1

FLOAT64 = (
    # 2e-16 a sum, over 25 layers: measured 3e-15.
    Row("layer ??", 1e-12),
    Row("decoded boxes", 1e-12),
    # Rounded to float32 the decoded boxes are equal, and so is what is chosen of them. In float32
    # two candidates of nearly one score may change places, so there is no such row.
    Row("nms", 0.0),
    Row("loss *", 1e-12),
    # Gradients of BatchNorm weights are sums that cancel: measured 8e-13.
    Row("gradients", 1e-9),
    # OneFlow keeps 1 - momentum as float32, 3e-8 from PyTorch's; it adds up with the steps to
    # 6e-7 after 20. Nothing in training reads these averages.
    Row("batchnorm", 3e-6),
    Row("* batchnorm", 3e-6),
    Row("* ema", 3e-6, PARAMETER_SCALE),
    # At a tenth of the recipe's rates (see `side.slowed`) rounding hardly grows: measured 1e-13
    # after 20 steps, 3e-12 for momentum and moments, and 6e-15 for losses.
    Row("* parameters", 1e-9, PARAMETER_SCALE),
    Row("* state", 1e-9),
    Row("* losses", 1e-11),
)

FLOAT32 = (
    # Sums of a few hundred products in another order: 1e-6, and little more over 25 layers.
    Row("layer ??", 2e-5),
    Row("decoded boxes", 2e-5),
    Row("loss *", 1e-5),
    # Sums over up to thousands of cells that cancel: measured 2e-4.
    Row("gradients", 2e-3),
    Row("batchnorm", 1e-5),
    # Measured after 20 steps: losses 6e-6, parameters of SGD 5e-5. Adam moves by the rate where
    # the gradient is mere rounding, too: 4e-4 for the worst.
    Row("* losses", 1e-3),
    Row("* batchnorm", 1e-3, PARAMETER_SCALE),
    Row("SGD parameters", 1e-3, PARAMETER_SCALE),
    Row("SGD ema", 1e-3, PARAMETER_SCALE),
    Row("Adam* parameters", 1e-2, PARAMETER_SCALE),
    Row("Adam* ema", 1e-2, PARAMETER_SCALE),
    # Of gradients, whose own differences are above: 2e-3, and 2e-2 where Adam averages rounding.
    Row("SGD state", 5e-2),
    Row("Adam* state", 2e-1),
)

SECTIONS = {"exact": EXACT, "float64": FLOAT64, "float32": FLOAT32}


class Line(NamedTuple):
    """A row of the table."""

    section: str  # "float64", ...
    row: str  # "layer 03", "gradients", ...
    item: str  # the tensor that differs most
    absolute: float
    relative: float  # to the largest magnitude in that tensor
    tolerance: float  # of the relative difference

    @property
    def agrees(self) -> bool:
        return self.relative <= self.tolerance


def compare(
    section: str,
    rows: Sequence[Row],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> list[Line]:
    """A line for each row; one that finds nothing to compare disagrees.

    Args:
        section: what the lines belong to.
        rows: every name must belong to one of them.
        actual: arrays by "ROW/ITEM".
        reference: the same of the other side.
    """
    names = sorted({*actual, *reference})
    lines, left = [], set(names)
    for row in rows:
        found = [name for name in names if fnmatchcase(row_of(name), row.pattern)]
        left -= set(found)
        for title in sorted(set(map(row_of, found))) or [row.pattern]:
            members = [name for name in found if row_of(name) == title]
            lines.append(worst_line(section, title, row, members, actual, reference))
    assert not left, f"{section}: no row for {sorted(left)}"
    return lines


def row_of(name: str) -> str:
    return name.partition("/")[0]


def worst_line(
    section: str,
    title: str,
    row: Row,
    names: Iterable[str],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> Line:
    """The line of the tensor that differs most, and of one that is missing before that."""
    worst = Line(section, title, "nothing to compare", np.inf, np.inf, row.tolerance)
    for index, name in enumerate(names):
        absolute, relative = difference(actual.get(name), reference.get(name), row.floor)
        if index == 0 or relative > worst.relative:
            item = name.partition("/")[2]
            worst = Line(section, title, item, absolute, relative, row.tolerance)
    return worst


def difference(
    actual: np.ndarray | None, reference: np.ndarray | None, floor: float
) -> tuple[float, float]:
    """Largest absolute difference, and that over the reference's largest magnitude or floor.

    Infinite for absent arrays, unequal shapes or dtypes, and anything that is not finite.
    """
    if actual is None or reference is None:
        return np.inf, np.inf
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return np.inf, np.inf
    if not (np.isfinite(actual).all() and np.isfinite(reference).all()):
        return np.inf, np.inf
    if actual.size == 0:
        return 0.0, 0.0
    expected = reference.astype(np.float64)
    absolute = float(np.abs(actual.astype(np.float64) - expected).max())
    scale = max(float(np.abs(expected).max()), floor)
    return absolute, absolute / scale if scale > 0 else (np.inf if absolute else 0.0)


def formatted(lines: Iterable[Line]) -> Iterator[str]:
    """The table as text, and in its last line the verdict over all."""
    lines = list(lines)
    yield (
        f"{'compared':<16}{'row':<22}{'worst tensor':<42}"
        f"{'absolute':>10}{'relative':>10}{'tolerance':>11}  verdict"
    )
    for line in lines:
        yield (
            f"{line.section:<16}{line.row:<22}{line.item:<42}{line.absolute:>10.1e}"
            f"{line.relative:>10.1e}{line.tolerance:>11.0e}  {'ok' if line.agrees else 'DIFFERS'}"
        )
    wrong = sum(not line.agrees for line in lines)
    yield f"{len(lines)} rows, " + (f"{wrong} differ" if wrong else "all agree")
