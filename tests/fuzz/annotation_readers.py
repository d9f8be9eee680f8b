"""What labelling tools export: annotations of an image or of many, names of classes."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from duet.utils.data.formats.labelme import LABELME
from duet.utils.data.sources.annotations import annotated_images, formats, read_annotations
from duet.utils.data.sources.formats.format import AnnotatedFolder, FileNotes, Format, collect
from duet.utils.data.sources.formats.names import listed_in
from duet.utils.data.sources.formats.voc import VOC
from duet.utils.data.sources.label_file import BrokenLabelError
from duet.utils.data.sources.recognised import recognise
from duet.utils.errors import UserError
from tests.fuzz.reader import MIB, Reader, as_text
from tests.fuzz.text_readers import JSON_TOKENS

XML_TOKENS = (
    b"<", b">", b"</", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?xml version='1.0'?>",
    b"<!DOCTYPE a [<!ENTITY b 'cccccccccc'>]>", b"&b;", b"&amp;", b"&#0;", b"&#x1F431;", b"<?a?>",
    b"<a>" * 70, b" encoding='utf-16'", b"1e308", b"1e999", b"nan", b"-0", b"-1", b"1_000",
    b"9999999999", b"1", b";", b",",
)  # fmt: skip
VOC_TOKENS = (
    *XML_TOKENS, b"<object>", b"</object>", b"<bndbox>", b"<xmin>", b"<polygon><x1>",
)  # fmt: skip
CVAT_TOKENS = (
    *XML_TOKENS, b'rotation="1e308"', b'width="99999999999"', b"<image ", b"<box ", b"<mask ",
    b"<meta>", b"<label>", b'<track id="0" label="a"/>',
)  # fmt: skip
LABELME_TOKENS = (
    *JSON_TOKENS, b'"shapes":', b'"points":', b'"mask"', b'"circle"', b'"shape_type":',
    b'"group_id": 1', b"[[1,2],[3,4]]", b"1e308", b"\\\\", b"iVBORw0KGgo",
)  # fmt: skip

VOC_SEEDS = [
    b"""<?xml version="1.0"?>
<annotation><folder>f</folder><filename>a.jpg</filename><path>C:\\a.jpg</path>
<source><database>The VOC2007 Database</database></source>
<size><width>64</width><height>48</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2.5</ymin>
<xmax>30</xmax><ymax>48</ymax></bndbox><part><name>tail</name></part></object>
<object><name>dog</name><difficult>1</difficult></object></annotation>
""",
    b"<annotation><object><name>x</name><polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2><x3>4</x3>"
    b"<y3>9</y3></polygon><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    b"</object></annotation>",
]


def labelme_seeds() -> list[bytes]:
    mask = cv2.imencode(".png", np.eye(6, dtype=np.uint8) * 255)[1].tobytes()
    points = {
        "polygon": [[1, 2], [9, 3.5], [4, 9]], "rectangle": [[1, 2], [9, 9]],
        "circle": [[20, 20], [22, 20]], "mask": [[3, 3], [8, 8]], "line": [[1, 1], [2, 2]],
    }  # fmt: skip
    shapes = [
        {"label": "cat", "shape_type": kind, "points": value, "group_id": 1, "flags": {}}
        for kind, value in points.items()
    ]
    shapes[3]["mask"] = base64.b64encode(mask).decode()
    document = {
        "version": "5.5.0", "shapes": shapes, "imagePath": "..\\b.jpg", "imageData": None,
        "imageHeight": 48, "imageWidth": 64,
    }  # fmt: skip
    return [json.dumps(document).encode(), json.dumps({"shapes": shapes[:1]}, indent=1).encode()]


def reader_of(kind: Format) -> Callable[[Path], object]:
    """Return what finds the folder of a file, reads it and uses the objects of its image."""

    def read(path: Path) -> object:
        path.with_suffix(".jpg").touch()
        kind.find(path.parent)
        folder, notes = AnnotatedFolder(kind.name, path.parent, path.parent), FileNotes()
        annotations = collect(kind.read(folder, notes), notes)
        images = annotated_images(annotations, annotations.class_names, path.parent)
        return [image.read_labels(len(annotations.class_names), (48, 64)) for image in images]

    return read


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><labels><label><name>cat</name><type>any</type>
<attributes></attributes></label><label><name>dog</name></label></labels></task></meta>
<image id="0" name="a.jpg" subset="Train" width="48" height="32">
<box label="cat" occluded="0" xtl="1.5" ytl="2" xbr="30" ybr="20" rotation="12.5"></box>
<polygon label="dog" points="1,2;30,4;20,31.5"></polygon>
<ellipse label="dog" cx="20" cy="10" rx="9" ry="5" rotation="30"></ellipse>
<mask label="cat" rle="7, 2, 4, 1, 10" left="5" top="3" width="6" height="4"></mask>
<polyline label="cat" points="1,1;2,2"></polyline><tag label="dog"></tag></image>
<image id="1" name="sub/b.jpg" subset="Validation" width="48" height="32"></image>
</annotations>"""

_SIZE = {"original_width": 48, "original_height": 32, "image_rotation": 0}
_VALUES = [
    {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 15, "rectanglelabels": ["cat"]},
    {"points": [[10, 10], [20, 10], [15, 30]], "polygonlabels": ["dog"]},
    {"x": 50, "y": 50, "radiusX": 10, "radiusY": 20, "rotation": 0, "ellipselabels": ["dog"]},
    {"format": "rle", "rle": [0, 1, 1], "brushlabels": ["dog"]},
]
TASKS = [
    {
        "id": 1,
        "data": {"image": "/data/upload/1/0a1b2c3d-a.jpg"},
        "annotations": [{"result": [{**_SIZE, "id": "r", "value": one} for one in _VALUES]}],
        "predictions": [],
    }
]
TASK_TOKENS = (
    b'"x": ', b'"points": ', b'"value": ', b'"result": ', b'"annotations": ', b'"original_width": ',
    b'"rotation": ', b'"image": ', b'"id": ', b'"rectanglelabels": ', b"?d=", b"%00", b"../",
)  # fmt: skip

OPENIMAGES = b"""\
ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction
a,xclick,/m/0cmf2,1,0.022673031,0.9642005,0.07103825,0.80054647,0,0,0,0
b,xclick,/m/02xwb,1,0.45655376,0.6097202,0.20399113,0.50554323,0,0,1,0
a,xclick,/m/04yx4,1,0.5,0.75,0.25,0.5,0,0,-1,0
"""
CSV_TOKENS = (
    b",",
    b"\n",
    b'"',
    b"\r\n",
    b"a,",
    b"nan",
    b"1e999",
    b"XMin",
    b"ImageID",
    b"\xef\xbb\xbf",
)
DARKNET = b"classes = 2\nnames = data/obj.names\ntrain = data/train.txt\nvalid = obj.data\n"


def read_folder(path: Path) -> object:
    """Read a folder in which the content is the only annotation file, as far as labels."""
    (path.parent / "images").mkdir(exist_ok=True)
    (path.parent / "images" / "a.jpg").touch()
    recognise(path.parent, ())
    labels = []
    for splits in (kind.find(path.parent) for kind in formats()):
        for folder in (part for parts in splits.values() for part in parts):
            annotations = read_annotations(folder)
            for image in annotated_images(annotations, annotations.class_names, path):
                try:
                    labels.append(image.read_labels(len(annotations.class_names), (32, 48)))
                except BrokenLabelError as error:
                    labels.append(str(error))
    if not labels:
        raise UserError("nothing is recognised")
    return labels


def read_names(path: Path) -> object:
    """Read class names of OpenImages beside rows that need them."""
    (path.parent / "train-annotations-bbox.csv").write_bytes(OPENIMAGES)
    return read_folder(path)


def read_yolo(path: Path) -> object:
    """Read a folder whose class names, or settings, are the content."""
    (path.parent / "a.jpg").touch()
    (path.parent / "obj.names").write_text("cat\ndog\n")
    (path.parent / "train.txt").write_text("data/a.jpg\n")
    return recognise(path.parent, ())


_PLAIN = {
    "voc-annotations": Reader(reader_of(VOC), lambda: VOC_SEEDS, "a.xml", VOC_TOKENS),
    # A mask may have many more pixels than bytes.
    "labelme-annotations": Reader(
        reader_of(LABELME), labelme_seeds, "a.json", LABELME_TOKENS, memory_bytes=1024 * MIB
    ),
    "cvat": Reader(read_folder, lambda: [CVAT.encode()], "annotations.xml", CVAT_TOKENS),
    "label-studio": Reader(
        read_folder,
        lambda: [json.dumps(TASKS).encode()],
        "tasks.json",
        (*JSON_TOKENS, *TASK_TOKENS),
    ),
    "openimages": Reader(
        read_folder, lambda: [OPENIMAGES], "train-annotations-bbox.csv", CSV_TOKENS
    ),
    "openimages-names": Reader(
        read_names,
        lambda: [b"LabelName,DisplayName\n/m/0cmf2,Airplane\n/m/02xwb,Fruit\n"],
        "class-descriptions-boxable.csv",
        CSV_TOKENS,
    ),
    "annotated-list": Reader(
        lambda path: listed_in(path, path.parent)(Path("a.jpg")),
        lambda: [b"images/a.jpg\nb\n"],
        "list.txt",
    ),
    "class-names": Reader(read_yolo, lambda: [b"cat\ndog\n\n", b"cat"], "classes.txt"),
    "darknet": Reader(
        read_yolo, lambda: [DARKNET], "obj.data", (b" = ", b"names", b"train", b"../", b"valid = ")
    ),
}

READERS = {name: replace(reader, seal=as_text) for name, reader in _PLAIN.items()}
