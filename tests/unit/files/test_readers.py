"""Every reader of a file from outside: what is no regular file is an error, never waited for."""

import signal
import tracemalloc

import numpy as np
import pytest

from models.graph import read_model_yaml
from tests.unit.files.special_files import KINDS, make_special
from utils.cli.hyperparameters import read_hyperparameters
from utils.comparison.settings import load_settings
from utils.data.image.header import BrokenImageError, read_image_size
from utils.data.loading.reading import decode
from utils.data.records.layout import RecordPlace, read_table
from utils.data.sources.coco_annotations import read_coco_annotations
from utils.data.sources.dataset_yaml import read_dataset_yaml
from utils.data.sources.image_files import list_images
from utils.data.sources.label_file import BrokenLabelError, parse_labels, read_label_bytes
from utils.data.sources.samples import Sample
from utils.errors import DatasetError, UserError
from utils.state.checkpoint import read_checkpoint
from utils.weights.load import load_weights

NO_LABELS = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)


READERS = {
    "image header": ("a.jpg", read_image_size),
    "image": ("a.jpg", lambda path: decode(Sample(path, 30, 40, *NO_LABELS))),
    "record": (
        "a.ffr",
        lambda path: decode(Sample(path, 30, 40, *NO_LABELS, RecordPlace(path, 0, 0, 9, 0))),
    ),
    "record file": ("a.ffr", read_table),
    "labels": ("a.txt", read_label_bytes),
    "list of images": ("a.txt", lambda path: list_images([path])),
    "annotations": ("a.json", lambda path: read_coco_annotations(path, [], [])),
    "--data": ("a.yaml", lambda path: read_dataset_yaml(path, ["train"])),
    "--hyp": ("a.yaml", lambda path: read_hyperparameters(str(path))),
    "--cfg": ("a.yaml", lambda path: read_model_yaml(str(path))),
    "--weights": ("a.pt", load_weights),
    "--weights of a run": ("a.safetensors", load_weights),
    "checkpoint": ("a.safetensors", read_checkpoint),
    "settings": ("settings.json", lambda path: load_settings(path.parent)),
}
TAKES_FOLDERS = ("list of images", "--weights")
REFUSALS = (UserError, BrokenImageError, BrokenLabelError)


@pytest.fixture(autouse=True)
def no_reader_waits():
    def stop(number, frame):
        raise TimeoutError("a reader waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (reader, kind)
        for reader in READERS
        for kind in KINDS
        if kind != "folder" or reader not in TAKES_FOLDERS
    ],
)
def test_no_reader_waits_for_a_special_file(tmp_path, reader, kind):
    name, read = READERS[reader]
    make_special(kind, tmp_path / name)
    with pytest.raises(REFUSALS) as caught:
        read(tmp_path / name)
    assert "regular file is needed" in str(caught.value) or kind.startswith("/proc")


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_fills_memory_with_a_file_of_holes(tmp_path, reader):
    name, read = READERS[reader]
    with open(tmp_path / name, "wb") as file:
        file.truncate(1 << 28)  # some accept files as large as this
    tracemalloc.start()
    with pytest.raises(REFUSALS):
        read(tmp_path / name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 24 or reader == "image"  # its bytes are read whole, to be decoded


def test_a_line_as_long_as_its_file_is_not_printed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (1 << 20))
    with pytest.raises(DatasetError, match="line 1 has 1,048,576 bytes"):
        list_images([path])
    with pytest.raises(BrokenLabelError) as caught:
        parse_labels(path.read_bytes(), num_classes=1)
    assert str(caught.value).startswith("line 1: could not convert string to float: 'xxx")
    assert len(str(caught.value)) < 200
