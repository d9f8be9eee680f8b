"""Whatever the threads do, the pipeline finds what the detector finds, in the sources' order."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from duet.backend import device
from duet.models.detect.pipeline import Lanes, Pipeline
from duet.models.detect.settings import num_lanes
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import make_predictor
from duet.models.inference.predictors import PredictorAround
from duet.utils.detect.media.source import Frame
from duet.utils.errors import BrokenSourceError
from duet.utils.evaluation.nms import SuppressionSettings
from tests.small import CLASS_NAMES, noise, tiny_checkpoint


class Images:
    """A source of noise; one frame is an image."""

    rate = None

    def __init__(self, number, kind="image", frames=1, breaks=False):
        self.number, self.kind, self.num_frames = number, kind, frames
        self.name, self._breaks = f"{number}.jpg", breaks

    def images(self):
        sizes = [(48, 64), (64, 64), (33, 70)]  # batches of several shapes
        for index in range(self.num_frames):
            yield noise(*sizes[(self.number + index) % 3], seed=10 * self.number + index)

    def frames(self):
        for index, image in enumerate(self.images()):
            time.sleep(random.random() / 500)
            yield Frame(image, self.name, None if self.kind == "image" else index)
        if self._breaks:
            raise BrokenSourceError("broken")

    def close(self):
        pass


SOURCES = [
    *map(Images, range(7)),
    Images(7, "video", 5),
    Images(8, frames=0, breaks=True),
    Images(9),
]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return make_predictor([tiny_checkpoint(tmp_path_factory.mktemp("weights"))], "cpu")


def make_detector(predictor, lanes):
    settings = SuppressionSettings(0.25, 0.45, max_detections=20, multi_label=False)
    return ImageDetector(predictor, "cpu", 64, settings, None, lanes, CLASS_NAMES)


@pytest.fixture
def detector(predictor):
    return make_detector(predictor, lanes=1)


class NotedFiles:
    """Notes what is begun and written, each frame by its source and number; may wait or fail."""

    def __init__(self, write=lambda name: time.sleep(random.random() / 500)):
        self.begun, self.written, self.appended, self._write = [], [], [], write

    def reserve(self, frame, rate):
        self.begun.append((int(frame.source.split(".")[0]), frame.number))
        return self.begun[-1]

    def write(self, result, place):
        self._write(place)
        self.written.append(place)

    def append(self, result, place):
        self.appended.append(place)


def detect(detector, sources, **options):
    """Return what was begun, written and told."""
    reported = []
    files = NotedFiles()
    Pipeline(detector, files, reported.append, **options).run(sources)
    return files.begun, files.written, reported


def detect_one_by_one(detector, sources):
    """What the detector finds in one image after another."""
    images = [image for source in sources for image in source.images()]
    return [detector.detect([image])[0] for image in images]


def detections_of(reported):
    return [done.result.detections for done in reported if done.result is not None]


@pytest.mark.parametrize(("threads", "lanes"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_pipeline_equals_single_images_bit_for_bit(predictor, threads, lanes):
    detector = make_detector(predictor, lanes)
    _, _, reported = detect(detector, SOURCES, threads=threads)
    wanted = detect_one_by_one(detector, SOURCES)
    assert sum(len(one.scores) for one in wanted) > 20
    for one, other in zip(detections_of(reported), wanted, strict=True):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_frames_are_reported_and_written_in_order(detector, batch_size):
    begun, written, reported = detect(detector, SOURCES, batch_size=batch_size, threads=4)
    order = [(n, None) for n in range(7)] + [(7, n) for n in range(5)] + [(9, None)]
    assert begun == order and sorted(written, key=str) == sorted(order, key=str)
    assert [one for one in written if one[0] == 7] == [(7, n) for n in range(5)]
    assert [done.source.number for done in reported] == [*range(7), 7, 7, 7, 7, 7, 8, 9]
    assert [(done.source.number, done.problem) for done in reported if done.problem] == [
        (8, "broken")
    ]


def test_network_calls_never_exceed_the_lanes(predictor):
    """Runtimes of exported files count on it."""

    class Counted(PredictorAround):
        inside, most = 0, 0

        def __call__(self, images):
            Counted.inside += 1
            Counted.most = max(Counted.most, Counted.inside)
            time.sleep(0.01)
            found = super().__call__(images)
            Counted.inside -= 1
            return found

    detector = make_detector(Counted(predictor), lanes=1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(detector.detect, [[noise(64, 64, seed)] for seed in range(8)]))
    assert Counted.most == 1


def test_next_batch_is_queued_while_results_are_pending(predictor):
    together = threading.Barrier(2, timeout=60)

    class Late(PredictorAround):
        def decode_above(self, raw, settings):
            together.wait()  # for the other batch to be queued: one lane would never get there
            return super().decode_above(raw, settings)

    detector = make_detector(Late(predictor), lanes=2)
    with Lanes(2) as lanes:
        batches = [detector.views(noise(64, 64, seed)) for seed in range(4)]
        assert all(lanes.map(detector.predict, batches))


def test_lanes_share_cpu_threads_and_return_them():
    before = device.host_threads()
    with Lanes(2) as lanes:
        found = {lanes.submit(device.host_threads).result() for _ in range(4)}
        assert found == {max(1, before // 2)}
    assert device.host_threads() == before
    assert num_lanes("cuda:0") == (2 if device.supports("copies_beside") else 1)
    assert 1 <= num_lanes("cpu") <= before


def test_write_failure_ends_the_run(detector):
    def write(place):
        if place[0] == 2:
            raise OSError(28, "No space left on device", "2.jpg")

    reported, files = [], NotedFiles(write)
    with pytest.raises(OSError, match="2.jpg"):
        Pipeline(detector, files, reported.append).run(map(Images, range(100)))
    assert [done.source.number for done in reported] == [0, 1]
    assert files.appended == [(0, None), (1, None)]
