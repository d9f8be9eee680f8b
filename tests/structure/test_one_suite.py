"""What runs in one suite alone: both suites together run all, and lose nothing by it."""

from __future__ import annotations

import ast
import itertools

import pytest

from backend.select import ENVIRONMENT_VARIABLE
from tests.one_suite import OF_BOTH, OF_NONE, TESTS, left_out
from tests.structure.source_files import parse
from tests.structure.test_imports import FILES, graph, imports_of
from utils.setup.suites import SIDE_BY_SIDE

BACKENDS = ("torch", "oneflow")
# What differs between the environments of the backends.
OTHERWISE = {"torch", "oneflow", "numpy", "cv2", "onnx", "onnxruntime"}
NAMESPACES = {"amp", "autograd", "device", "dist", "fused", "multi_tensor", "nn", "ops", "optim"}


def closure(module: str) -> set[str]:
    """The modules of the project that a module imports, and those that they import."""
    found, left = set(), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph()[name] - {"backend"}  # it imports no framework: test_import.py
    return found


def needs(module: str) -> set[str]:
    """The packages and namespaces of a backend in a module's closure that differ by environment."""
    names = {
        name
        for other in closure(module)
        for node in ast.walk(parse(FILES[other]))
        for name in imports_of(node)
    }
    packages = {name.partition(".")[0] for name in names} & OTHERWISE
    return packages | {name for name in names if name in {f"backend.{n}" for n in NAMESPACES}}


def module_of(path: str) -> str:
    return ".".join(("tests", *path.removesuffix(".py").split("/")))


@pytest.mark.parametrize("path", [*itertools.chain(*OF_NONE.values())])
def test_what_one_suite_alone_runs_asks_nothing_that_differs_between_them(path):
    assert needs(module_of(path)) == set()


def test_what_differs_is_found_however_far_away():
    assert needs("tests.unit.test_boxes") == {"numpy"}
    assert needs("tests.parity.test_stored_loss_variants") >= {"numpy", "backend.ops"}


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("side_by_side", ["", "1"])
def test_every_file_runs_in_one_of_the_suites_at_least(side_by_side, chosen):
    torch, oneflow = (
        left_out({ENVIRONMENT_VARIABLE: backend, SIDE_BY_SIDE: side_by_side}, chosen)
        for backend in BACKENDS
    )
    assert torch & oneflow == set()
    assert all(path.exists() for path in torch | oneflow)
    shared = {TESTS / path for path in itertools.chain(*OF_NONE.values())}
    assert bool(shared & (torch | oneflow)) is bool(side_by_side and not chosen)
    of_both = {TESTS / path for path in itertools.chain(*OF_BOTH.values())}
    assert of_both <= torch | oneflow
