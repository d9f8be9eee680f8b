# Runs without a framework.
import ast
from pathlib import Path

from duet.utils.project import PROJECT

PLACES = {
    "the contract": ("backend/contract/inference.py", "mean"),
    "on PyTorch": ("backend/torch/ops.py", "mean"),
    "on OneFlow": ("backend/oneflow/ops.py", "mean"),
    "its check": (
        "tests/conformance/checks_shapes.py",
        "averages_all_or_along_a_dimension",
    ),
    "a wrong version": (
        "tests/conformance/wrong/wrong_ops.py",
        "mean_of_nothing_is_zero",
    ),
}
for index, (what, (file, name)) in enumerate(PLACES.items()):
    lines = Path(PROJECT / file).read_text(encoding="utf-8").splitlines()
    (found,) = (
        node
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    first = min(
        [
            found.lineno,
            *(decorator.lineno for decorator in found.decorator_list),
        ]
    )
    print("\n" * (index > 0) + f"# {what}: {file}")
    print(
        "\n".join(
            line[found.col_offset :]
            for line in lines[first - 1 : found.end_lineno]
        )
    )
