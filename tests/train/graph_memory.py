"""A stand-in for PyTorch's CUDA graphs on a CPU, which does the worst that they may do.

What a compiled function returns, and the gradients that it computes, lie in memory that the
beginning of the next pass fills with NaN.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from duet.backend import autograd
from duet.models.training import execution


class GraphMemory:
    """Runs functions as they are; keeps their results and gradients until the next pass.

    Attributes:
        passes: that were begun.
    """

    def __init__(self) -> None:
        self.torch = importlib.import_module("duet.backend.torch.autograd").torch
        self.passes = 0
        self._kept: list[Any] = []
        memory = self

        class Lent(self.torch.autograd.Function):
            """Copy numbers into the memory, and their gradients."""

            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return memory.take(x)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return memory.take(gradient)

        self._lent = Lent.apply

    def take(self, x: Any) -> Any:
        copied = x.clone()
        self._kept.append(copied.data)  # without a count of changes: they are silent
        return copied

    def compile(self, function: Any, dynamic: bool, mode: str | None) -> Any:
        """Stand in for `torch.compile`."""
        assert mode == "reduce-overhead" and not dynamic

        def run(*inputs: Any) -> Any:
            if not isinstance(function, self.torch.nn.Module):
                return self._lend(function(*self._lend(inputs)))
            weights = self._lend(dict(function.named_parameters()))
            return self._lend(self.torch.func.functional_call(function, weights, inputs))

        return run

    def begin_pass(self) -> None:
        """Stand in for `torch.compiler.cudagraph_mark_step_begin`."""
        self.passes += 1
        for x in self._kept:
            x.fill_(float("nan") if x.is_floating_point() else 0)
        self._kept.clear()

    def _lend(self, tree: Any) -> Any:
        def lend(x: Any) -> Any:
            return self._lent(x) if x.is_floating_point() else x

        return self.torch.utils._pytree.tree_map_only(self.torch.Tensor, lend, tree)


def run_in_graph_memory(monkeypatch: pytest.MonkeyPatch) -> GraphMemory:
    """Have compiled steps on a CPU run in such a memory."""
    memory = GraphMemory()
    monkeypatch.setattr(memory.torch, "compile", memory.compile)
    monkeypatch.setattr(memory.torch.compiler, "cudagraph_mark_step_begin", memory.begin_pass)
    compile_steps(monkeypatch, no_graphs="")
    return memory


def compile_steps(monkeypatch: pytest.MonkeyPatch, no_graphs: str) -> None:
    """Have --compile find a compiler, and graphs unless there is a reason against them."""
    monkeypatch.setattr(autograd, "compile_problem", lambda device: None)
    monkeypatch.setattr(execution, "graph_problem", lambda device, drops: no_graphs)
