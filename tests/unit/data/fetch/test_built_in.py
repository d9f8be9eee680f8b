"""What the built-in lists fetch is a dataset that --data takes, unpacked where they say."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile

import cv2
import numpy as np
import pytest
import yaml

from tests.loopback_site import loopback_site
from utils.data.fetch import __main__ as command
from utils.data.fetch.lists import FOLDER, find_list
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split

IMAGE = cv2.imencode(".jpg", np.zeros((20, 30, 3), np.uint8))[1].tobytes()
OBJECT = """<annotation><source><database>The VOC2007 Database</database></source>
<filename>{}.jpg</filename><size><width>30</width><height>20</height><depth>3</depth></size>
<object><name>dog</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>12</xmax><ymax>13</ymax></bndbox>
</object></annotation>"""


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def coco(number):
    return json.dumps({
        "images": [{"id": 1, "file_name": f"{number:012}.jpg", "width": 30, "height": 20}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 18, "bbox": [2, 3, 10, 10],
                         "area": 100, "iscrowd": 0}],
    })  # fmt: skip


def voc(year, number, lists):
    root = f"VOCdevkit/VOC{year}"
    return tarred({
        f"{root}/Annotations/{number}.xml": OBJECT.format(number).encode(),
        f"{root}/JPEGImages/{number}.jpg": IMAGE,
        **{f"{root}/ImageSets/Main/{name}.txt": f"{number}\n".encode() for name in lists},
    })  # fmt: skip


# As large archives are laid out: COCO's own, and those of Pascal VOC.
ARCHIVES = {
    "annotations_trainval2017.zip": zipped({
        "annotations/instances_train2017.json": coco(1),
        "annotations/instances_val2017.json": coco(2),
        "annotations/captions_val2017.json": '{"images": [], "annotations": []}',
    }),
    "train2017.zip": zipped({"train2017/": b"", "train2017/000000000001.jpg": IMAGE}),
    "val2017.zip": zipped({"val2017/": b"", "val2017/000000000002.jpg": IMAGE}),
    "VOCtrainval_06-Nov-2007.tar": voc(2007, "000005", ["train", "trainval"]),
    "VOCtest_06-Nov-2007.tar": voc(2007, "000001", ["test"]),
    "VOCtrainval_11-May-2012.tar": voc(2012, "2008_000001", ["val", "trainval"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "folder", "splits"),
    [
        ("coco", "coco", {"train": ["000000000001.jpg"], "val": ["000000000002.jpg"]}),
        ("voc", "voc", {"train": ["000005.jpg"], "val": ["2008_000001.jpg"],
                        "test": ["000001.jpg"]}),
    ],
)  # fmt: skip
def test_a_fetched_dataset_is_read(tmp_path, monkeypatch, capsys, name, folder, splits):
    document = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    with loopback_site() as site:
        for file in document["files"]:
            content = ARCHIVES[file["url"].rpartition("/")[2]]
            file["url"] = site.put(f"/{file['path']}", content)
            file["sha256"], file["size"] = hashlib.sha256(content).hexdigest(), len(content)
        path, out = tmp_path / "list.yaml", tmp_path / "out"
        path.write_text(yaml.safe_dump(document))
        monkeypatch.setattr("sys.argv", ["fetch", str(path), "--out", str(out)])
        command.main()
        assert f"train with --data {out / folder}" in capsys.readouterr().out
    dataset = load_dataset(out / folder, splits=tuple(splits))
    assert dataset.class_names == ("dog",)
    for split, names in splits.items():
        samples = load_split(dataset, split)
        assert [sample.image_path.name for sample in samples] == names
        assert [len(sample.class_index) for sample in samples] == [1]


def test_the_addresses_are_those_of_who_made_them():
    servers = {
        "coco": "http://images.cocodataset.org/",
        "voc": "http://host.robots.ox.ac.uk/pascal/VOC/",
        "yolov5": "https://github.com/ultralytics/yolov5/releases/download/v7.0/",
    }
    for name, server in servers.items():
        assert all(item.url.startswith(server) for item in find_list(name).items)
