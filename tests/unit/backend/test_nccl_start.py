"""How ranks on GPUs meet, without a GPU: what PyTorch is asked for."""

from __future__ import annotations

import importlib

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow meets at its import")


@pytest.mark.parametrize(
    ("device", "engines", "bound"),
    [("cpu", "gloo", None), ("cuda:1", "cpu:gloo,cuda:nccl", "cuda:1")],
)
def test_nccl_is_told_the_device_of_the_rank(
    device: str, engines: str, bound: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module("backend.torch.dist")
    asked: list[tuple[object, object]] = []
    chosen: list[str] = []
    monkeypatch.setattr(module.torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(
        module.distributed,
        "init_process_group",
        lambda engines, **options: asked.append((engines, options["device_id"])),
    )
    backend.dist.start(device, 10.0)
    assert asked == [(engines, module.torch.device(bound) if bound else None)]
    assert chosen == ([bound] if bound else [])
