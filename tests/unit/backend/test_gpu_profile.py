"""A profile of a GPU: what a profiler's events become, here of events that are made up."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from types import SimpleNamespace

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow gives no profile")


def event(name, kind, start=0.0, end=0.0, own=0.0, annotation=False):
    """An event of PyTorch's profiler; times in microseconds, `own` of the kernels it launched."""
    types = importlib.import_module("torch.autograd").DeviceType
    return SimpleNamespace(
        name=name, device_type=getattr(types, kind), is_user_annotation=annotation,
        self_device_time_total=own, self_cpu_time_total=1e9, cpu_parent=None,
        time_range=SimpleNamespace(start=start, end=end),
    )  # fmt: skip


def profile(monkeypatch, events):
    module, calls = importlib.import_module("backend.torch.device"), []

    @contextlib.contextmanager
    def recorded(activities, acc_events=False):
        if not acc_events:  # as PyTorch 2.11
            warnings.warn("Profiler clears events at the end of each cycle", stacklevel=2)
        calls.append(activities)
        yield SimpleNamespace(events=lambda: events)

    monkeypatch.setattr(module.torch.profiler, "profile", recorded)
    monkeypatch.setattr(module, "synchronize", lambda device: calls.append(device))
    found = module.profile(lambda: calls.append("run"), "cuda:0")
    kinds = module.ProfilerActivity
    assert calls == [[kinds.CPU, kinds.CUDA], "run", "cuda:0"]  # it waits for what was queued
    return found


def test_kernels_are_counted_and_their_time_is_that_of_their_operations(monkeypatch):
    found = profile(monkeypatch, [
        event("aten::conv2d", "CPU", 0, 900, own=30.0),
        event("aten::conv2d", "CPU", 900, 950, own=20.0),
        event("aten::empty", "CPU", 950, 960),
        event("kernel", "CUDA", 100, 130), event("kernel", "CUDA", 150, 170),
        event("Optimizer.step", "CUDA", 0, 400, annotation=True),
    ])  # fmt: skip
    assert found.launched == 2
    assert found.seconds == {"aten::conv2d": pytest.approx(50e-6), "aten::empty": 0.0}
    assert (found.busy_seconds, found.span_seconds) == pytest.approx((50e-6, 70e-6))


def test_kernels_of_a_replayed_graph_belong_to_no_operation(monkeypatch):
    found = profile(monkeypatch, [
        event("cudaGraphLaunch", "CPU", 0, 5), event("kernel", "CUDA", 10, 40),
    ])  # fmt: skip
    assert found.seconds["(of no operation)"] == pytest.approx(30e-6)
