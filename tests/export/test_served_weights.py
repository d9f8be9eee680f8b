"""Weights behind HTTP: converted at the start, then the boxes that other programs get of them."""

import contextlib
import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import pytest

from models import load
from tests.tiny_weights import noise, write_tiny_weights
from tests.unit.serve.running import running
from utils.processes.process_family import descendants
from utils.serve.own_folder import PREFIX, OwnFolder

SIZE = 64
DETECT = "/v1/detect"
COMMAND = ("-m", "utils.serve")
IMAGES = [
    cv2.imencode(".png", noise(height, width, seed))[1].tobytes()
    for seed, (height, width) in enumerate([(64, 96), (96, 64), (64, 64), (30, 200)])
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder in which a server makes temporary files."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def server(tmp_path_factory, place):
    weights = write_tiny_weights(tmp_path_factory.mktemp("weights"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(place))
        flags = ("--weights", weights, "--img", SIZE, "--device", "cpu")
        with running(*flags, command=COMMAND) as found:
            yield found


@pytest.fixture(scope="module")
def converted(server, place):
    """The ONNX file that the server runs."""
    (path,) = place.glob(f"{PREFIX}*/*.onnx")
    return path


def worker_of(server):
    """The process with the model."""
    (found,) = descendants(server.process.pid)
    return found


def detections(reply):
    assert reply.status == 200, reply
    return reply.json["detections"]


def test_the_boxes_are_those_of_the_same_file_in_another_program(server, converted):
    detector = load(converted, device="cpu")
    for image in IMAGES:
        (expected,) = detector(image, size=SIZE)
        assert detections(server.ask(DETECT, image)) == expected.to_dict()["detections"]
        assert len(expected) > 0


def test_many_at_once_get_what_each_gets_alone(server):
    alone = [detections(server.ask(DETECT, image)) for image in IMAGES]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.ask, DETECT, image) for image in IMAGES * 8]
    assert [detections(one.result()) for one in asked] == alone * 8


def test_the_worker_has_no_framework_and_tells_what_runs_the_model(server):
    maps = Path("/proc", str(worker_of(server)), "maps").read_text()
    assert "libtorch" not in maps and "_oneflow_internal" not in maps and "onnxruntime" in maps
    (model,) = server.ask("/v1/model").json["models"]
    assert model["runs_in"].startswith("ONNX Runtime") and model["weights"] == "tiny0.safetensors"
    assert (model["image_size"], model["task"], model["max_batch"]) == (SIZE, "detect", 1)


def test_a_worker_that_is_killed_while_it_works_loses_no_answer(server):
    alone = detections(server.ask(DETECT, IMAGES[0]))
    killed = worker_of(server)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.ask, DETECT, IMAGES[0]) for _ in range(24)]
        os.kill(killed, signal.SIGKILL)
    assert [detections(one.result()) for one in asked] == [alone] * 24
    assert worker_of(server) != killed


def test_a_worker_ends_with_a_server_that_is_killed_and_its_folder_with_the_next(
    server, converted, place, monkeypatch
):
    worker = Path("/proc", str(worker_of(server)))
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 10
    while worker.exists() and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):  # an earlier test may have us adopt orphans
            os.waitpid(int(worker.name), os.WNOHANG)
        time.sleep(0.02)
    assert not worker.exists() and converted.exists()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    OwnFolder().remove()
    assert not list(place.iterdir())
