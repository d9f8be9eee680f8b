"""TF32 on a GPU: what switches it off, as the frameworks and NVIDIA's libraries are told."""

from __future__ import annotations

import importlib

import pytest

from duet import backend
from duet.models.training import execution

GPU = "cuda:0"


@pytest.fixture
def device(monkeypatch):
    """Return the backend's `device`, beside a GPU that has TF32; no setting outlives the test."""
    found = importlib.import_module(f"duet.backend.{backend.use()}.device")
    framework = importlib.import_module(backend.use())
    monkeypatch.setattr(framework.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    torch = backend.use() == "torch"
    parts = [framework.backends.cudnn, framework.backends.cuda.matmul] if torch else []
    before = [part.allow_tf32 for part in parts]
    for part in parts:
        part.allow_tf32 = True
    yield found
    for part, value in zip(parts, before, strict=True):
        part.allow_tf32 = value


def test_only_a_backend_that_can_computes_exactly_when_told_to(device):
    for where, rounds in (("cpu", True), (GPU, backend.use() == "oneflow")):
        device.compute_exactly(where)
        assert device.rounds_to_tf32(GPU) is rounds
        if backend.use() == "torch":  # products of matrices too
            assert device.torch.backends.cuda.matmul.allow_tf32 is rounds


@pytest.mark.skipif(backend.use() != "torch", reason="OneFlow's switch cannot be set back")
def test_kernels_are_chosen_by_time_only_while_shapes_repeat_on_a_gpu(device):
    cudnn = device.torch.backends.cudnn
    with device.shapes_repeat("cpu", True):
        assert not cudnn.benchmark
    with pytest.raises(ZeroDivisionError), device.shapes_repeat(GPU, True):
        assert cudnn.benchmark
        with device.shapes_repeat(GPU, False):
            assert not cudnn.benchmark
        assert cudnn.benchmark
        raise ZeroDivisionError
    assert not cudnn.benchmark  # the host program's setting


@pytest.mark.parametrize(("value", "rounds"), [("0", False), ("1", True), ("", True)])
def test_the_variable_of_nvidias_libraries_rules_every_backend(device, monkeypatch, value, rounds):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    assert device.rounds_to_tf32(GPU) is rounds
    assert device.rounds_to_tf32("cpu") is False


def test_oneflows_own_variable_does_not_reach_convolutions(device, monkeypatch):
    monkeypatch.setenv("ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION", "0")
    assert device.rounds_to_tf32(GPU)


def test_a_gpu_without_tf32_rounds_nothing(device, monkeypatch):
    framework = importlib.import_module(backend.use())
    monkeypatch.setattr(framework.cuda, "get_device_capability", lambda device: (7, 5))
    assert not device.rounds_to_tf32(GPU)


def test_the_start_says_how_a_gpu_rounds(device):
    chosen = execution.describe_precision("bfloat16", GPU, True)
    assert chosen == "bfloat16 (--amp auto; use --amp off for float32)"
    assert execution.describe_precision("float16", GPU, False) == "float16"
    assert execution.describe_precision("float32", "cpu", False) == "float32"
    rounded = execution.describe_precision("float32", GPU, False)
    assert "convolutions use TF32" in rounded and "NVIDIA_TF32_OVERRIDE=0" in rounded
    device.compute_exactly(GPU)
    exact = execution.describe_precision("float32", GPU, False)
    assert exact == ("float32 (exact)" if backend.use() == "torch" else rounded)
