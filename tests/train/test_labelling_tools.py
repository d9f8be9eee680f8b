"""An epoch of train.py from what labelling tools export, as their documentation shows it.

All objects have corners at multiples of 16 px of 64, which each format can write exactly. So the
batches, which the record of the work has a hash of, are those of YOLO's label files.
"""

import json

import cv2
import numpy as np
import pytest

from tests.small import write_tiny_model
from tests.train.short_runs import folder_of, start
from utils.state.checkpoint import load_checkpoint

SIDE = 64
NAMES = ("disc", "square")
# By split and image: class, left, top, right, bottom in 64ths of the image.
OBJECTS = {
    ("train", "a"): [("square", 0, 16, 32, 48), ("disc", 32, 0, 64, 32)],
    ("train", "b"): [("disc", 16, 16, 48, 64)],
    ("train", "c"): [],
    ("train", "d"): [("square", 0, 0, 16, 32)],
    ("val", "e"): [("square", 16, 32, 64, 64), ("disc", 0, 0, 32, 16)],
    ("val", "f"): [("disc", 32, 32, 48, 48)],
}


def write_yolo(folder):
    (folder / "classes.txt").write_text("\n".join(NAMES))
    for (split, name), objects in OBJECTS.items():
        rows = []
        for kind, left, top, right, bottom in objects:
            box = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
            rows.append(" ".join([str(NAMES.index(kind)), *(str(value / SIDE) for value in box)]))
        file = folder / "labels" / split / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(rows))


def write_cvat(folder):
    labels = "".join(f"<label><name>{name}</name><type>any</type></label>" for name in NAMES)
    parts = [f"<meta><project><labels>{labels}</labels></project></meta>"]
    for index, ((split, name), objects) in enumerate(OBJECTS.items()):
        boxes = "".join(
            f'<box label="{kind}" source="manual" occluded="0" xtl="{left:.2f}" ytl="{top:.2f}" '
            f'xbr="{right:.2f}" ybr="{bottom:.2f}" z_order="0"></box><tag label="night"></tag>'
            for kind, left, top, right, bottom in objects
        )
        parts.append(
            f'<image id="{index}" name="{name}.png" subset="{split}" task_id="3" '
            f'width="{SIDE}" height="{SIDE}">{boxes}</image>'
        )
    text = f"<annotations><version>1.1</version>{''.join(parts)}</annotations>"
    (folder / "annotations.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{text}')


def write_label_studio(folder):
    for wanted in ("train", "val"):
        tasks = []
        for number, ((split, name), objects) in enumerate(OBJECTS.items()):
            if split != wanted:
                continue
            regions = []
            for kind, left, top, right, bottom in objects:
                place = {"x": left, "y": top, "width": right - left, "height": bottom - top}
                value = {key: 100 * length / SIDE for key, length in place.items()}
                regions.append({
                    "id": f"r{len(regions)}", "type": "rectanglelabels", "from_name": "label",
                    "to_name": "image", "original_width": SIDE, "original_height": SIDE,
                    "image_rotation": 0,
                    "value": {**value, "rotation": 0, "rectanglelabels": [kind]},
                })  # fmt: skip
            tasks.append({
                "id": number, "data": {"image": f"/data/upload/1/0a1b2c3d-{name}.png"},
                "annotations": [{"id": 1, "was_cancelled": False, "result": regions}],
                "predictions": [],
            })  # fmt: skip
        (folder / f"{wanted}.json").write_text(json.dumps(tasks))


def write_openimages(folder):
    (folder / "class-descriptions-boxable.csv").write_text("/m/0d,disc\n/m/0s,square\n")
    label_of = {"disc": "/m/0d", "square": "/m/0s"}
    for wanted in ("train", "val"):
        rows = [
            "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
            "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
        ]
        for (split, name), objects in OBJECTS.items():
            for kind, left, top, right, bottom in objects if split == wanted else ():
                box = ",".join(str(value / SIDE) for value in (left, right, top, bottom))
                rows.append(f"{name},xclick,{label_of[kind]},1,{box},0,0,0,0,0")
        # A group alone says that nobody has drawn the objects: the image is a background here.
        if wanted == "train":
            rows.append(f"c,xclick,{label_of['disc']},1,0,1,0,1,0,0,1,0,0")
        name = {"train": "train", "val": "validation"}[wanted]
        (folder / f"{name}-annotations-bbox.csv").write_text("\n".join(rows))


WRITERS = {
    "yolo": write_yolo,
    "cvat": write_cvat,
    "label-studio": write_label_studio,
    "openimages": write_openimages,
}


@pytest.fixture(scope="module")
def train_on(tmp_path_factory):
    """Train on a format, once; return the run's folder."""
    folder = tmp_path_factory.mktemp("tools")
    model = write_tiny_model(folder)
    runs = {}

    def run(name):
        if name not in runs:
            data = folder / name
            for (split, image), objects in OBJECTS.items():
                (data / "images" / split).mkdir(parents=True, exist_ok=True)
                pixels = np.full((SIDE, SIDE, 3), 40 * len(objects), np.uint8)
                for kind, left, top, right, bottom in objects:
                    pixels[top:bottom, left:right] = (200, 80)[kind == "disc"]
                cv2.imwrite(str(data / "images" / split / f"{image}.png"), pixels)
            WRITERS[name](data)
            flags = [
                "--data", str(data), "--cfg", str(model), "--img", str(SIDE), "--batch", "2",
                "--epochs", "1", "--workers", "0", "--device", "cpu", "--noplots",
                "--noautoanchor", "--project", str(folder / "runs"), "--name", name,
            ]  # fmt: skip
            start(flags)
            runs[name] = folder_of(flags, name)
        return runs[name]

    return run


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "yolo"])
def test_an_epoch_from_an_export_does_the_work_of_one_from_label_files(train_on, name):
    own, yolo = train_on(name), train_on("yolo")
    header = load_checkpoint(own / "weights" / "last.safetensors").header
    assert tuple(header.class_names) == NAMES
    works = [json.loads((folder / "work.json").read_text()) for folder in (own, yolo)]
    for key in ("batches", "batches_sha1", "train_images", "validation"):
        assert works[0]["work"][key] == works[1]["work"][key]
    assert works[0]["losses"] == works[1]["losses"]
