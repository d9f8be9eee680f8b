"""benchmarks/scaling*.py: the arithmetic by hand, and the sizes against a real model and file."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import backend
from benchmarks import scaling, scaling_measure, scaling_rank
from benchmarks import scaling_model as scale
from benchmarks.scaling_model import Constants, Link, Network
from tests.small import write_small_model
from utils.detections import Detections
from utils.evaluation.nms import SuppressionSettings
from utils.evaluation.progress import FoundImage, make_progress

TINY = Network(
    parameters=10, state_bytes=48, norm_layers=2, norm_channels=6, convolution_outputs=2.0
)
SLOW, FAST = Link(latency=1e-3, bandwidth=1e3), Link(latency=1e-4, bandwidth=1e4)


@pytest.mark.parametrize(("members", "sent"), [(1, 0), (2, 80), (4, 120), (8, 140)])
def test_a_ring_moves_the_bytes_twice_less_one_share(members, sent):
    assert scale.ring_bytes(80, members) == sent


def test_a_ring_takes_a_message_for_each_step_around_it_twice():
    # 6 messages of 1 ms and 120 bytes at 1,000 bytes a second.
    assert scale.ring_seconds(80, 4, SLOW) == pytest.approx(0.006 + 0.12)
    assert scale.ring_seconds(80, 1, SLOW) == 0


def test_machines_exchange_among_themselves_what_their_devices_have_summed():
    found = scale.sum_over(80, devices=16, a_machine=8, inside=FAST, between=SLOW)
    assert (found.inside, found.between) == (140, 80)
    # Inside 14 messages of 0.1 ms and 140 bytes; between 2 of 1 ms and 80 bytes.
    assert found.seconds == pytest.approx(0.0014 + 0.014 + 0.002 + 0.08)


def test_devices_of_one_machine_use_no_network():
    found = scale.sum_over(80, devices=4, a_machine=8, inside=FAST, between=SLOW)
    assert (found.inside, found.between) == (120, 0)


def test_synchronised_batch_norm_sums_four_numbers_a_channel_in_four_messages_a_layer():
    assert scale.sync_batch_norm_bytes(TINY) == 4 * 4 * 6
    # 8 sums of 12 bytes over two devices: 2 messages and 12 bytes each.
    seconds = scale.sync_batch_norm_seconds(TINY, 2, 8, SLOW, FAST)
    assert seconds == pytest.approx(8 * (0.002 + 0.012))


def test_short_exchanges_take_nothing_but_latency():
    # Four times 14 messages of 0.1 ms inside a machine and 2 of 1 ms between two.
    assert scale.short_exchanges_seconds(16, 8, FAST, SLOW) == pytest.approx(4 * (0.0014 + 0.002))
    assert scale.short_exchanges_seconds(1, 8, FAST, SLOW) == 0


def test_validation_gathers_what_the_other_ranks_found():
    most = SuppressionSettings().max_detections
    boxes, scores = np.zeros((most, 4), np.float32), np.zeros(most, np.float32)
    found = Detections(boxes, scores, np.zeros(most, np.int64))
    gathered = make_progress(np.zeros((0, 3)), [FoundImage(0, 0, found)] * 10, found)
    size = sum(array.nbytes for array in gathered.arrays().values())
    assert scale.validation_bytes(10, 1) == 0
    assert scale.validation_bytes(10, 4) == size * 3 / 4


def test_memory_adds_up():
    alone = scale.memory(TINY, images=3, side=2, devices=1, activation_factor=1.5)
    assert alone.trained == 48 + 48 + 40 + 40  # weights, average, gradients, momentum
    assert alone.buckets == 0
    assert alone.activations == 4 * 1.5 * 2 * (2 * 2) * 3
    together = scale.memory(TINY, 3, 2, devices=2, activation_factor=1.5, momenta=2)
    assert together.total == alone.total + 40 + 40  # buckets, and Adam's second momentum


def test_a_small_model_has_the_sizes_that_are_counted(tmp_path, monkeypatch):
    path = write_small_model(tmp_path)
    monkeypatch.setattr(scaling_measure, "model_yaml", lambda name: path)
    network = scaling_measure.count_network(path)
    saved = scaling_measure.save_model("n", tmp_path)
    header = saved["bytes"] - scale.checkpoint_bytes(network)
    assert 0 < header < 200_000  # names, shapes and the model YAML
    # A BatchNorm layer's state: four numbers a channel, two of them trained, and a counter.
    buffers = network.state_bytes - 4 * network.parameters
    anchors = 4 * 3 * 3 * 2  # levels, anchors of each, width and height
    assert buffers == 2 * 4 * network.norm_channels + 8 * network.norm_layers + anchors


def test_constants_are_found_again_from_what_they_predict():
    wanted = Constants(Link(2e-4, 1e9), activation_factor=3.0, process=1e6, joined=5e5)

    def training(images, ranks, more=0.0):
        total = scale.memory(TINY, images, 32, ranks, 3.0).total + 1e6 + more
        sizes = (4e3, 1e6, 1e8)
        sums = [{"bytes": n, "seconds": scale.ring_seconds(n, 2, wanted.link)} for n in sizes]
        return {"images": images, "img": 32, "memory": total, "sums": sums}

    found = scale.fit(TINY, [training(4, 1), training(8, 1), training(4, 2, 5e5)])
    # The latency is taken from a sum that is small, not empty: 2 us of 4 kB.
    assert found.link.latency == pytest.approx(2e-4, abs=2.1e-6)
    assert found.link.bandwidth == pytest.approx(1e9)
    assert (found.activation_factor, found.process, found.joined) == pytest.approx((3, 1e6, 5e5))


def test_the_page_shows_the_tables_of_the_stored_constants():
    page = scaling.PAGE.read_text()
    assert scaling.fill(page, scaling.render(json.loads(scaling.CONSTANTS.read_text()))) == page


def test_the_chinese_page_shows_the_same_tables():
    page = scaling.CHINESE_PAGE.read_text(encoding="utf-8")
    tables = scaling.render(json.loads(scaling.CONSTANTS.read_text()))
    chinese = {name: scaling.in_chinese(table) for name, table in tables.items()}
    assert scaling.fill(page, chinese) == page
    names = {"n", "s", "m", "l", "x", "torch", "oneflow", "sync", "bn", "rank", "EMA"}
    units = {"MB", "GB", "s"}
    left = {word for table in chinese.values() for word in re.findall("[A-Za-z]+", table)}
    assert left <= names | units


def test_the_page_must_have_a_place_for_each_table():
    with pytest.raises(ValueError):
        scaling.fill("no mark", {"bytes": "| |"})


def test_the_ranks_that_were_measured_exchanged_what_the_model_says():
    document = json.loads(scaling.CONSTANTS.read_text())
    networks = {name: Network(**sizes) for name, sizes in document["networks"].items()}
    runs = [run for found in document["backends"].values() for run in found["trainings"]]
    pairs = [run for run in runs if run["ranks"] == 2]
    assert {run["model"] for run in pairs} == {"n", "s"}
    for run in pairs:
        sent = scale.ring_bytes(scale.gradient_bytes(networks[run["model"]]), 2)
        # TCP's headers and acknowledgements, and a few sums of some numbers, come to it.
        assert sent < run["exchanged"] < 1.02 * sent


def test_a_rank_is_measured(tmp_path, monkeypatch):
    path = write_small_model(tmp_path)
    monkeypatch.setattr(scaling_measure, "model_yaml", lambda name: path)
    found = scaling_measure.train("narrow", ranks=1, images=1, side=64)
    assert (found["model"], found["ranks"], found["images"], found["img"]) == ("narrow", 1, 1, 64)
    assert found["seconds"] > 0 and found["memory"] > 0
    assert found["sums"] == []


def test_several_ranks_run_the_same_command_line(monkeypatch):
    started = []
    monkeypatch.setattr(scaling_rank.sys, "argv", ["scaling_rank", "--ranks", "2"])
    monkeypatch.setattr(scaling_rank, "run_ranks", lambda *call: started.append(call) or 1)
    monkeypatch.setattr(scaling_rank.shutil, "which", lambda name: None)
    assert scaling_rank.start_ranks(2, None) == 1
    command = [sys.executable, "-m", "benchmarks.scaling_rank", "--ranks", "2"]
    assert started == [(command, backend.use(), {"WORLD_SIZE": "2"})]
