"""Threads of a training step: by its work, unless the user or another device decides."""

import logging

import pytest

from duet import backend

backend.use()

from duet.backend import cores  # noqa: E402
from duet.models.graph import (  # noqa: E402
    count_gflops,  # noqa: E402
    plan_layers,
    read_model_yaml,
)
from duet.models.training.execution import choose_step_threads  # noqa: E402
from duet.models.training.start import images_at_a_time  # noqa: E402
from duet.utils.cli.train_config import parse_train_flags  # noqa: E402

SPEC = read_model_yaml("models/yolov5n.yaml")


@pytest.fixture
def chosen(monkeypatch):
    """Return the numbers of threads that were set, in a process that began with 4."""
    numbers = []
    monkeypatch.setattr(cores, "_are_asked_for", False)
    monkeypatch.setattr(backend.device, "host_threads", lambda: 4, raising=False)
    monkeypatch.setattr(backend.device, "set_host_threads", numbers.append, raising=False)
    return numbers


def choose(device="cpu", ranks=1, **flags):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    config = parse_train_flags(["--cfg", "F", *words])
    gflops = count_gflops(plan_layers(SPEC), config.image_size)
    images = images_at_a_time(config.batch_size, config.micro_batch, ranks)
    choose_step_threads(images * gflops, device)


def test_small_step_gets_one_thread_and_a_log_line(chosen, caplog):
    caplog.set_level(logging.INFO)
    assert 0.5 < 8 * count_gflops(plan_layers(SPEC), 96) < 1
    choose(img=96, batch_size=8)
    assert chosen == [1]
    assert "threads: using 1 of 4: more do not speed up a step of 0." in caplog.text


def test_thread_choice_counts_images_per_rank_and_pass(chosen):
    choose(img=320, batch_size=16, micro_batch=1)
    choose(img=320, batch_size=16, ranks=16)
    assert chosen == [2, 2]


def test_users_thread_count_and_other_devices_are_untouched(chosen, monkeypatch):
    choose(img=96, batch_size=8, device="cuda:0")
    monkeypatch.setattr(cores, "_are_asked_for", True)
    choose(img=96, batch_size=8)
    assert chosen == []
