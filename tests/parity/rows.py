"""What `python -m tests.parity` compares: each row of its table with its tolerance and why."""

from __future__ import annotations

from typing import NamedTuple

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

# The stored networks ran in float32, on another build of PyTorch.
STORED = (
    Row("layer ??", 2e-5),
    Row("raw maps", 2e-5),
    Row("decoded boxes", 2e-5),
    # float64 predictions meet float32 targets, and the stored terms are float32.
    Row("loss", 2e-6),
    Row("loss gradients", 2e-6),
    # Sums over up to 12,288 cells: measured 4e-4.
    Row("gradients", 2e-3),
    Row("batchnorm", 1e-5),
)

SECTIONS = {"exact": EXACT, "float64": FLOAT64, "float32": FLOAT32, "stored": STORED}
