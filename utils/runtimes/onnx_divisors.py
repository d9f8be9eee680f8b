"""The divisors of an ONNX node: a bad one ends the process, because runtimes do not check.

A processor stops a program that divides a whole number by 0, or the lowest one by -1. Runtimes do
not look for either. Before: `onnx_tensors.py`. After: `onnx_sizes.py` follows the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.optional import import_optional

DIVIDERS = ("Div", "Mod")
REALS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
SIDES = ("strides", "dilations", "kernel_shape")
COUNTS = ("group", "num_groups", "blocksize")


def check_counts(node: Any) -> None:
    """Raise UserError for an attribute by which sizes are divided, if it is not positive."""
    for attribute in node.attribute:
        given = list(attribute.ints) if attribute.name in SIDES else [attribute.i]
        if attribute.name in (*SIDES, *COUNTS) and min(given, default=1) < 1:
            raise UserError(
                f"its node {node.op_type} {brief(node.name)} has {attribute.name} {brief(given)}; "
                "1 or more is accepted"
            )


def check_divisor(node: Any, types: Mapping[str, Any], constants: Mapping[str, np.ndarray]) -> None:
    """Raise UserError for a division of integers by anything but positive constants of the file.

    Args:
        types: of the node's inputs, ONNX's `TypeProto` by name.
        constants: the numbers of the file by name; what is computed can differ in a runtime.
    """
    if node.op_type not in DIVIDERS:
        return
    numbers = import_optional("onnx", "an ONNX file").TensorProto.DataType
    kind = types[node.input[0]].tensor_type.elem_type
    divisor = constants.get(node.input[1])
    if numbers.Name(kind) not in REALS and (divisor is None or (divisor < 1).any()):
        raise UserError(
            f"its node {node.op_type} {brief(node.name)} divides integers by numbers that "
            "are not positive constants of the file; that can crash the program"
        )
