"""A process of its own: the Triton kernels of PyTorch, compiled to machine code without a GPU.

Prints the size of each kernel's code, by compute capability and dtype of the boxes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from backend.torch.kernels import complete_iou as kernels

# Compute capability (RTX 20 series, A100, H100), dtype of the boxes, dtype of the computation.
COMBINATIONS = ((75, "*fp32", "*fp32"), (80, "*fp64", "*fp64"), (90, "*bf16", "*fp32"))


def sources(boxes: str, computed: str) -> list[ASTSource]:
    """Return both kernels for boxes of one dtype: pointers "*bf16", "*fp32" or "*fp64"."""
    rows = kernels.ROWS_PER_PROGRAM
    types = {"*fp32": tl.float32, "*fp64": tl.float64}
    return [
        ASTSource(
            kernels._value_and_gradient,
            {"pred": boxes, "target": computed, "value": computed, "gradient": computed,
             "num_rows": "i32", "EPS": "constexpr", "DTYPE": "constexpr", "ROWS": "constexpr"},
            {"EPS": 1e-7, "DTYPE": types[computed], "ROWS": rows},
        ),
        ASTSource(
            kernels._scale_rows,
            {"gradient": computed, "outer": computed, "outer_stride": "i32", "scaled": boxes,
             "num_rows": "i32", "ROWS": "constexpr"},
            {"ROWS": rows},
        ),
    ]  # fmt: skip


def main() -> None:
    for capability, boxes, computed in COMBINATIONS:
        target = GPUTarget("cuda", capability, 32)
        compiled = [triton.compile(source, target=target) for source in sources(boxes, computed)]
        print(capability, boxes, *(len(kernel.asm["cubin"]) for kernel in compiled))


if __name__ == "__main__":
    main()
