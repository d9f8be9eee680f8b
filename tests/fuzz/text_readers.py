"""YAML, JSON, XML, CSV and plain text from outside: datasets, labels, settings, requests."""

import base64
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import cv2
import numpy as np
import yaml

from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.comparison.document import build_document
from duet.utils.comparison.settings import FILE as COMPARISON
from duet.utils.comparison.settings import load_comparison, parse_flags
from duet.utils.data.check.inspection import read_rows
from duet.utils.data.fetch.download import FETCH_FOLDER, find_list
from duet.utils.data.masks.runs import iou
from duet.utils.data.sources.annotations import annotated_images, formats, read_annotations
from duet.utils.data.sources.coco_annotations import read_coco_annotations
from duet.utils.data.sources.dataset_yaml import read_dataset_yaml
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.formats.names import listed_in
from duet.utils.data.sources.image_sources import ImageFile, list_images
from duet.utils.data.sources.label_file import BrokenLabelError, parse_labels, read_label_bytes
from duet.utils.data.sources.recognised import recognise
from duet.utils.data.sources.samples import Sample
from duet.utils.detect.media.finding import find_sources
from duet.utils.errors import UserError
from duet.utils.evolution.study import Range, SearchStudy
from duet.utils.export.metadata import metadata_as_json, metadata_of_json
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.project import PROJECT
from duet.utils.report.results import read_results
from duet.utils.serve.requests import (
    RequestError,
    answer_kind,
    check_access,
    read_query,
    read_tokens,
)
from duet.utils.state.resume import newest_runs
from tests.fuzz.campaign import MIB, Reader
from tests.onnx_files import METADATA
from tests.small import RESULT_COLUMNS, TINY
from tests.unit.data.formats.annotation_files import (
    CASES,
    HEIGHT,
    WIDTH,
    coco,
    coco_object,
    csv_row,
    labelme_shape,
    region,
    touch,
    voc_box,
)

YAML_WORDS = (
    b"&a ", b"*a", b"<<: *a\n", b"[*a, *a, *a]", b"&a [x, x, x, x, x, x, x, x]\n", b"- ", b"? ",
    b": ", b"[", b"{", b"]", b"}", b"|\n", b">\n", b"!!python/object/apply:os.system ['true']",
    b"!!binary ", b"!!timestamp 2001-01-01", b"2001-01-01", b"!!set {a, b}", b"!!omap [a: 1]",
    b"!!float .inf", b"%YAML 1.2\n", b"---\n", b"...\n", b"\t", b"'", b'"', b"#", b"12:30:45",
    b"0o17", b"~", b"nc: ", b"names: ", b"path: ", b"yes", b"1e3", b".nan", b"kpt_shape: ",
    b"images/*", b"**/", b"[a-", b"../",
)  # fmt: skip
JSON_WORDS = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"NaN",
    b"Infinity", b"1e999", b'{"a":', b'"id": ', b"[[[[[[[[", b"1e308", b"..", b"/", b"\\\\",
    b'"counts": ', b'"size": [32, 48]', b"1073741824", b"4294967296",
)  # fmt: skip
XML_WORDS = (
    b"<", b">", b"</", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?xml version='1.0'?>",
    b"<!DOCTYPE a [<!ENTITY b 'cccccccccc'>]>", b"&b;", b"&amp;", b"&#0;", b"&#x1F431;", b"<?a?>",
    b"<a>" * 70, b" encoding='utf-16'", b"1e308", b"1e999", b"nan", b"-0", b"1_000", b"9999999999",
    b";", b",", b'rotation="1e308"', b'<track id="0" label="a"/>',
)  # fmt: skip
LINE_WORDS = (
    b",", b'"', b"\r", b" ", b"\t", b"=", b"\x85", b"\xe2\x80\xa8", b"\xe2\x80\xae",
    b"\xef\xbb\xbf", b"nan", b"inf", b"-0.2 ", b"1.005 ", b"1e999", b"1e-320 ", b"../", b"a,",
)  # fmt: skip
SOURCE_WORDS = (b"://", b"rtsp://h\n", b"http://", b"file://", b"screen 9", b"screen", b"@", b"0\n")
REQUEST_WORDS = (*LINE_WORDS, b"%ff", b"%00", b"&", b";q=", b"*/*")

SIZE = {"width": 48, "height": 32}  # of images whose masks are runs
RUNS = coco(
    [
        # 3 x 4 px at the left top, as runs and as their text; two parts; a crowd.
        coco_object([0, 0, 3, 4], {"counts": [0, 4, 28, 4, 28, 4, 1468], "size": [32, 48]}),
        coco_object([0, 0, 3, 4], {"counts": "04l0000P]1", "size": [32, 48]}),
        coco_object([1, 2, 10, 10], [[1, 2, 11, 2, 11, 12], [20, 20.5, 30, 20.5, 20, 30]]),
    ],
    images=[{"id": 7, "file_name": "a.jpg", **SIZE}],
)
CROWD = coco_object(
    [0, 0, 48, 32], {"counts": [1, 2], "size": [32, 48]}, iscrowd=1, category_id=9, id=2
)
BOXES = {**RUNS, "annotations": [coco_object([1.0, 2, 10, 10], [[1, 2, 11, 2, 11, 12]]), CROWD]}


def sample(path: Path) -> Sample:
    """Return the image of these files without objects."""
    return Sample(
        path.with_name("a.jpg"), 32, 48, np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    )


def read_coco_boxes(path: Path) -> object:
    return read_coco_annotations(path, [sample(path)], ["cat", "dog", "owl"])


def read_coco_masks(path: Path) -> object:
    """Read the objects of a validation, and compare their masks with each other."""
    truth = read_coco_annotations(path, [sample(path)], ["cat", "dog", "owl"], masks=True)
    masks = truth.ground_truth(0).masks
    assert masks is not None and all(row.sum(dtype=np.int64) == 32 * 48 for row in masks.rows())
    return iou(masks, masks, truth.ground_truth(0).is_crowd)


# More objects of each label format than the one of its case.
MASK = base64.b64encode(cv2.imencode(".png", np.eye(6, dtype=np.uint8) * 255)[1]).decode()
CSV = "OpenImages CSV"
OBJECTS: dict[str, Sequence[object]] = {
    "Pascal VOC": [
        voc_box(1, 2.5, 30, 48, "cat", "<difficult>0</difficult><part><name>tail</name></part>"),
        "<object><name>dog</name><difficult>1</difficult></object>",
        voc_box(1, 2, 9, 9, more="<polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2></polygon>"),
    ],
    "LabelMe": [
        labelme_shape("polygon", [[1, 2], [9, 3.5], [4, 9]], group_id=1),
        labelme_shape("circle", [[20, 20], [22, 20]]),
        labelme_shape("mask", [[3, 3], [8, 8]], "cat", mask=MASK),
        labelme_shape("line", [[1, 1], [2, 2]]),
    ],
    "CVAT for images 1.1": [
        '<box label="plate" xtl="1.5" ytl="2" xbr="30" ybr="20" rotation="12.5"></box>',
        '<polygon label="dog" points="1,2;30,4;20,31.5"></polygon>',
        '<ellipse label="dog" cx="20" cy="10" rx="9" ry="5" rotation="30"></ellipse>',
        '<mask label="dog" rle="7, 2, 4, 1, 10" left="5" top="3" width="6" height="4"></mask>',
        '<polyline label="dog" points="1,1;2,2"></polyline><tag label="night"></tag>',
    ],
    "Label Studio JSON": [
        region(x=10, y=20, width=30, height=40, rotation=15, rectanglelabels=["cat"]),
        region(points=[[10, 10], [20, 10], [15, 30]], polygonlabels=["dog"]),
        region(x=50, y=50, radiusX=10, radiusY=20, rotation=0, ellipselabels=["dog"]),
        region(format="rle", rle=[0, 1, 1], brushlabels=["dog"]),
    ],
    "COCO JSON": [*BOXES["annotations"], *RUNS["annotations"]],
    CSV: [csv_row((0.5, 0.75, 0.25, 0.5), "/m/02", group=-1)],
}


def labels_of(path: Path, name: str) -> object:
    """Recognise the folder of a file of a format, and read the labels of images in it."""
    (kind,) = [kind for kind in formats() if kind.name == name]
    touch(path.parent, "a.jpg")
    recognise(path.parent, ())
    kind.find(path.parent)
    kind.find(path)
    place = path.parent if kind.accepts(path.parent) else path
    found = read_annotations(AnnotatedFolder(name, place, path.parent))
    labels: list[object] = []
    for image in annotated_images(found, found.class_names, path.parent):
        try:
            labels.append(image.read_labels(len(found.class_names), (HEIGHT, WIDTH)))
        except BrokenLabelError as error:
            labels.append(error)
    if labels and all(isinstance(one, BrokenLabelError) for one in labels):
        raise labels[0]
    return labels


def format_reader(name: str, words: Sequence[bytes]) -> Reader:
    case = CASES[name]
    texts = [case.text([case.box]), case.text([case.box, *OBJECTS[name]])]
    # A mask may have many more pixels than bytes.
    read = partial(labels_of, name=name)
    return replace(reader(read, texts, case.file, words), memory_bytes=1024 * MIB)


def read_names(path: Path) -> object:
    """Read class names of OpenImages beside rows that need them."""
    rows = path.with_name(CASES[CSV].file)
    rows.write_text(CASES[CSV].text([CASES[CSV].box]))
    return labels_of(rows, CSV)


def read_yolo(path: Path) -> object:
    """Read a folder whose class names, or settings, are the content."""
    touch(path.parent, "a.jpg")
    (path.parent / "obj.names").write_text("cat\ndog\n")
    (path.parent / "train.txt").write_text("data/a.jpg\n")
    return recognise(path.parent, ())


DATASET = b"""path: .
train: images
val: [images, list.txt]
nc: 2
names: {0: cat, 1: dog}
download: https://example.com/a.zip
"""
SECOND_YAML = b"names: [cat, dog]\nother: x\ntrain: images\nval: images\nnc: 2\n"
COLUMNS = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
RESULTS = [
    "\n".join([",".join(COLUMNS), *(f"{row}" + ",0.25" * (len(COLUMNS) - 1) for row in rows), ""])
    for rows in (range(1), range(3))
]
LABELS = (
    b"0 0.5 0.5 0.25 0.25\n2 0.1 0.1 0.3 0.1 0.2 0.4\n", b"1 .5 .5 1 1", b"",
    b"1 0 0 1 0 1 1\n" * 9,
)  # fmt: skip


def read_dataset(path: Path) -> object:
    touch(path.parent, "images/a.jpg")
    (path.parent / "list.txt").write_text("images/a.jpg\n")
    return read_dataset_yaml(path, ("train", "val"))


def read_neighbour(path: Path) -> object:
    """Look for the newest run where a neighbour's opt.yaml is the mutant."""
    touch(path.parent, "weights/last.safetensors")
    return newest_runs(path.parent.parent, path.parent.name)


def read_labels(path: Path) -> object:
    """Read every line as the check does: it must agree with the reader of a training."""
    rows = read_rows(ImageFile(path.with_suffix(".jpg")), 3, (100, 200))
    try:
        num_used = len(parse_labels(read_label_bytes(path), num_classes=3).class_index)
    except BrokenLabelError as error:
        assert any(row.kind not in ("", "repeated_object") for row in rows)
        raise UserError(str(error)) from error
    assert num_used == sum(row.is_decided for row in rows)
    return rows


def comparison_document() -> list[bytes]:
    """Return the file that compare.py writes for --resume."""
    with tempfile.TemporaryDirectory() as folder:
        settings, _, _ = parse_flags(["--backends", "torch", "--project", folder])
    document = build_document(settings, {}, {"cores": 2}, "running", "2026-01-01")
    return [json.dumps(document).encode()]


def read_search(path: Path) -> SearchStudy:
    ranges, settings = {"lr0": Range(0.0, 1.0)}, {"epochs": 2, "seed": 0}
    return SearchStudy(path, {"lr0": 0.01}, ranges, settings)


def write_search() -> list[bytes]:
    """Return the file of a search with a trial that has ended and one that has not."""
    with tempfile.TemporaryDirectory() as folder:
        study = read_search(Path(folder, "search"))
        study.end_trial(study.begin_trial(), "COMPLETE", 0.1, {"a": 1.0})
        study.begin_trial().report(0.1, 0)
        return [Path(folder, "search").read_bytes()]


def read_sources(path: Path) -> object:
    return [source.name for source in find_sources(str(path), MAX_PIXELS)]


def read_request(path: Path) -> None:
    """Read the first line as a query, the second as a Host, the rest as an Accept header."""
    query, _, rest = path.read_bytes().decode("latin-1").partition("\n")
    host, _, accept = rest.partition("\n")
    try:
        read_query(parse_qsl(query, keep_blank_values=True))
        answer_kind(accept)
        check_access("/v1/detect", {"host": host, "origin": f"http://{host}"}, (), "127.0.0.1")
    except RequestError as error:
        raise UserError(str(error)) from error


def reader(
    read: Callable[[Path], object], seeds: Sequence[bytes | Path | str], *more: object
) -> Reader:
    """Return a reader whose seeds are contents, texts or files."""
    contents = [
        seed.read_bytes() if isinstance(seed, Path) else seed.encode() if isinstance(seed, str)
        else seed for seed in seeds
    ]  # fmt: skip
    return Reader(read, lambda: contents, *more)


def as_text(content: bytes) -> bytes:
    """Return UTF-8, but for one content in eight: most damage would be found by decoding it."""
    return content if len(content) % 8 == 0 else content.decode(errors="replace").encode()


_PLAIN = {
    "dataset-yaml": reader(read_dataset, (DATASET, SECOND_YAML), "data.yaml", YAML_WORDS),
    "hyperparameters": reader(
        read_hyperparameters, sorted((PROJECT / "data/hyps").glob("*.yaml")), "hyp.yaml", YAML_WORDS
    ),
    "model-yaml": replace(
        reader(
            lambda path: Detector(read_model_yaml(path, num_classes=2)),
            (TINY, yaml.safe_dump(yaml.safe_load(TINY))), "model.yaml",
            (*YAML_WORDS, b"SPPF", b"Concat", b"nn.Upsample"),
        ),
        memory_bytes=1024 * MIB,
    ),
    "run-options": reader(
        read_neighbour, ["name: exp\nepochs: 3\nhyp: a.yaml\n"], "opt.yaml", YAML_WORDS
    ),
    "fetch-list": reader(
        lambda path: find_list(str(path)), sorted(FETCH_FOLDER.glob("*.yaml")), "list.yaml",
        (*YAML_WORDS, b"url: file:///", b"sha256: null", b"unpack: ", b"1e9"),
    ),
    "voc-annotations": format_reader("Pascal VOC", XML_WORDS),
    "labelme-annotations": format_reader("LabelMe", (*JSON_WORDS, b"iVBORw0KGgo")),
    "cvat": format_reader("CVAT for images 1.1", XML_WORDS),
    "label-studio": format_reader("Label Studio JSON", (*JSON_WORDS, b"?d=", b"%00")),
    "coco-dataset": format_reader("COCO JSON", JSON_WORDS),
    "openimages": format_reader(CSV, LINE_WORDS),
    "openimages-names": reader(
        read_names, ["LabelName,DisplayName\ndog,Airplane\n/m/02xwb,Fruit\n"],
        "class-descriptions-boxable.csv", LINE_WORDS,
    ),
    "coco-annotations": reader(
        read_coco_boxes, (json.dumps(BOXES), json.dumps(BOXES, indent=1)), "a.json", JSON_WORDS
    ),
    "coco-masks": reader(
        read_coco_masks, (json.dumps(RUNS), json.dumps(RUNS, indent=1)), "a.json", JSON_WORDS
    ),
    "class-names": reader(read_yolo, ("cat\ndog\n\n", "cat"), "classes.txt", LINE_WORDS),
    "darknet": reader(
        read_yolo, ["names = data/obj.names\ntrain = data/train.txt\nvalid = obj.data\n"],
        "obj.data", LINE_WORDS,
    ),
    "annotated-list": reader(
        lambda path: listed_in(path, path.parent)(Path("a.jpg")), ["images/a.jpg\nb\n"], "list.txt"
    ),
    "image-list": reader(
        lambda path: list_images([path]),
        ("images/a.jpg\n./list.txt\n\n/c/d.jpeg\n", "list.txt"), "list.txt",  # one must be there
    ),
    "labels": reader(read_labels, LABELS, "a.txt", (*LINE_WORDS, b"0 0.5 0.5 0.25 0.25\n", b"7 ")),
    "comparison": Reader(
        lambda path: load_comparison(path.parent), comparison_document, COMPARISON, JSON_WORDS
    ),
    "search-trials": Reader(
        read_search, write_search, "search.journal",
        (*JSON_WORDS, b"\n", b'"op_code":5', b'"trial_id":1', b'"param_value_internal":1e400'),
    ),
    "results-csv": reader(read_results, RESULTS, "results.csv", (*LINE_WORDS, b"1e400")),
    "source-list": reader(
        read_sources, ("a.jpg\nb/c.png\n/d.mp4\n", "\ufeffa.jpg\r\n"), "mutant.txt", SOURCE_WORDS
    ),
    "stream-list": reader(
        read_sources, ("rtsp://a:b@c/d\n0\n", "udp://@:1\n"), "mutant.streams", SOURCE_WORDS
    ),
}  # fmt: skip

READERS = {name: replace(reader, seal=as_text) for name, reader in _PLAIN.items()} | {
    # Of any bytes.
    "exported-metadata": reader(
        lambda path: metadata_of_json(path.read_bytes()), [metadata_as_json(METADATA)], "a.json",
        JSON_WORDS,
    ),
    "serve-query": reader(
        read_request,
        ["model=a&conf=0.25&iou=0.45&max_det=9&classes=0,2&agnostic=1\nlocalhost:8000\n"
         "image/png;q=0.9"],
        "query", REQUEST_WORDS,
    ),
    "serve-tokens": reader(
        read_tokens, ["0123456789abcdef\n0123456789abcdef-ABC_.~+/==\n"], "tokens", REQUEST_WORDS
    ),
}  # fmt: skip
