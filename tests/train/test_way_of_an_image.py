"""The files that an image passes, traced: a new one on its way is a decision."""

import sys
from pathlib import Path

import pytest

from duet import backend
from duet.models.training.start import build
from duet.models.training.step import settle, train_step
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.project import PROJECT
from duet.utils.state.job import Job, read_data, train_loader
from duet.utils.tasks import DETECTION
from tests.small import write_small_dataset

PRODUCT = ("backend", "duet", "models", "utils")
# Of a dataset YAML, JPEG images and YOLO labels, up to the samples.
SCAN = """
backend/processes.py
utils/data/loading/items.py
utils/data/sources/class_folders.py
utils/data/sources/dataset.py
utils/data/sources/dataset_yaml.py
utils/data/sources/image_sources.py
utils/data/sources/remarks.py
utils/data/sources/samples.py
utils/data/sources/scan.py
utils/data/sources/splits.py
utils/files/regular.py
utils/files/yaml_files.py
utils/geometry/boxes.py
utils/processes/watchdog.py
utils/processes/world.py
utils/progress.py
utils/state/job.py
utils/tasks.py
"""
# From the bytes of its files to a batch, of the default recipe.
BATCH = """
backend/processes.py
utils/data/augment/geometry.py
utils/data/augment/sample.py
utils/data/augment/tiles.py
utils/data/image/decoding.py
utils/data/image/header.py
utils/data/image/letterbox.py
utils/data/loading/batch.py
utils/data/loading/batches.py
utils/data/loading/items.py
utils/data/randomness.py
utils/data/sources/samples.py
utils/files/regular.py
utils/geometry/boxes.py
"""
# From the batch to the update of the weights; * is the backend.
UPDATE = """
backend/*/autograd.py
backend/*/device.py
backend/*/dist.py
backend/*/nn.py
backend/*/ops.py
backend/*/optim.py
backend/checks.py
backend/processes.py
backend/updates.py
models/blocks/yolov5.py
models/detector.py
models/heads/anchor/assign.py
models/heads/anchor/boxes.py
models/heads/anchor/head.py
models/heads/anchor/loss.py
models/heads/base.py
models/training/optimizer.py
models/training/step.py
models/training/step_watch.py
utils/data/loading/batch.py
"""
MOST, MOST_WITH_SCAN = 32, 45  # lower them when a file leaves the way


def traced(work):
    """Return what the work returns, and the files of the product whose functions it calls."""
    found = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    paths = [path for name in found if (path := Path(name).resolve()).is_relative_to(PROJECT)]
    names = {path.relative_to(PROJECT).as_posix() for path in paths}
    own = f"backend/{backend.use()}/"
    names = {name.replace(own, "backend/*/") for name in names if name.startswith(PRODUCT)}
    return result, names - {"backend/*/__init__.py"}  # OneFlow's mends its tensor class


def pass_an_image(folder):
    """Return the files of each stretch, from a dataset on disk to one update of the weights."""
    data = write_small_dataset(folder)
    words = ("--data", data, "--cfg", "yolov5n.yaml", "--img", "64", "--batch", "4")
    config = parse_train_flags([*map(str, words), "--workers", "0", "--device", "cpu"])
    samples, scan = traced(lambda: read_data(config, DETECTION))
    job = Job(config, read_hyperparameters(DEFAULT_HYPERPARAMETERS), samples)
    with train_loader(job) as loader:
        loader.start()
        state = build(job, len(loader))
        loader.lend_to(state.device)
        batches = loader.epoch(0)
        batch, load = traced(lambda: next(batches))

        def step():
            train_step(state, batch, state.timer)
            settle(state)

        _, update = traced(step)
    return scan, load, update


@pytest.fixture(scope="module")
def way(tmp_path_factory):
    pass_an_image(tmp_path_factory.mktemp("first"))  # imports, and binds the backend's names
    return pass_an_image(tmp_path_factory.mktemp("second"))


@pytest.mark.parametrize(("stretch", "listed"), list(enumerate((SCAN, BATCH, UPDATE))))
def test_image_passes_exactly_the_listed_files(way, stretch, listed):
    assert way[stretch] == set(listed.split())


def test_way_of_an_image_is_short(way):
    scan, load, update = way
    assert len(load | update) <= MOST
    assert len(scan | load | update) <= MOST_WITH_SCAN
