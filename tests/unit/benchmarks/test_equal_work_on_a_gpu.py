"""What a GPU rounds or adds otherwise each time does not count as unequal work of benchmarks."""

import importlib

import numpy as np
import pytest

import backend
from backend import autograd, device, nn
from benchmarks import folding, optimizer
from tests.small import write_small_model


def test_folding_is_compared_without_tf32_whose_rounding_is_larger(monkeypatch):
    calls = []
    monkeypatch.setattr(
        device, "compute_exactly", lambda where: calls.append(f"exact {where}"), raising=False
    )
    monkeypatch.setattr(folding, "build_model", lambda *_: lambda images: calls.append("network"))
    monkeypatch.setattr(folding, "require_equal_tensors", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["folding", "--device", "cpu", "--img", "64", "--repeats", "1"])
    folding.main()
    assert calls[0] == "exact cpu" and set(calls[1:]) == {"network"}


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_optimizers_get_the_gradients_of_one_pass(monkeypatch, tmp_path, name):
    build, random = optimizer.build_model, np.random.default_rng(0)

    def build_anew(*arguments):
        """Build a model whose gradients no other pass gives again."""
        model = build(*arguments)
        trained = dict(nn.named_parameters(model))
        drawn = {n: random.normal(size=tuple(x.shape)) for n, x in trained.items()}
        autograd.set_gradients(trained, {n: x.astype(np.float32) for n, x in drawn.items()})
        return model

    monkeypatch.setattr(optimizer, "build_model", build_anew)
    runs = optimizer.build_candidates(name, write_small_model(tmp_path), "cpu")
    assert list(runs) == ["plain", "multi_tensor"]


@pytest.mark.skipif(backend.use() != "torch", reason="OneFlow changes no gradient in a step")
def test_a_step_that_changes_gradients_gets_them_anew(monkeypatch, tmp_path):
    module = importlib.import_module("backend.torch.optim")
    # The plain step on a GPU: with Nesterov momentum and no decay it works in the gradients.
    step = module.sgd

    def as_on_a_gpu(*lists, fused, **options):
        step(*lists, fused=fused, foreach=not fused, **options)

    monkeypatch.setattr(module, "sgd", as_on_a_gpu)
    monkeypatch.setattr(optimizer, "RATES", (0.1, 0.1, 0.1))
    optimizer.build_candidates("SGD", write_small_model(tmp_path), "cpu")
