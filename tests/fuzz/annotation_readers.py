"""Annotation files of labelling tools, each of one image."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from tests.fuzz.reader import MIB, Reader, as_text
from tests.fuzz.text_readers import JSON_TOKENS
from utils.data.formats.labelme import LABELME
from utils.data.sources.annotated_images import annotated_images
from utils.data.sources.formats.format import AnnotatedFolder, FileNotes, Format, collect
from utils.data.sources.formats.voc import VOC

XML_TOKENS = (
    b"<", b">", b"</", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?xml version='1.0'?>",
    b"<!DOCTYPE a [<!ENTITY b 'cccccccccc'>]>", b"&b;", b"&amp;", b"&#0;", b"&#x1F431;",
    b"<a>" * 70, b" encoding='utf-16'", b"<object>", b"</object>", b"<bndbox>", b"<xmin>",
    b"<polygon><x1>", b"1e308", b"nan", b"-0", b"1_000", b"9999999999", b"1",
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


_READERS = {
    "voc-annotations": Reader(reader_of(VOC), lambda: VOC_SEEDS, "a.xml", XML_TOKENS),
    # A mask may have many more pixels than bytes.
    "labelme-annotations": Reader(
        reader_of(LABELME), labelme_seeds, "a.json", LABELME_TOKENS, memory_bytes=1024 * MIB
    ),
}

ANNOTATION_READERS = {name: replace(reader, seal=as_text) for name, reader in _READERS.items()}
