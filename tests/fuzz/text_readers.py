"""YAML, JSON, CSV and plain text from outside."""

import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.comparison.document import build_document
from duet.utils.comparison.settings import FILE as COMPARISON
from duet.utils.comparison.settings import load_comparison, parse_flags
from duet.utils.data.check.inspection import read_rows
from duet.utils.data.masks.runs import iou
from duet.utils.data.sources.annotations import annotated_images, read_annotations
from duet.utils.data.sources.coco_annotations import read_coco_annotations
from duet.utils.data.sources.dataset_yaml import read_dataset_yaml
from duet.utils.data.sources.formats.coco import COCO as COCO_FORMAT
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.image_sources import ImageFile, list_images
from duet.utils.data.sources.label_file import (
    BrokenLabelError,
    parse_labels,
    read_label_bytes,
)
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from duet.utils.evolution.study import Range, SearchStudy
from duet.utils.project import PROJECT
from duet.utils.report.results import read_results
from duet.utils.state.resume import newest_runs
from tests.fuzz.reader import MIB, Reader, as_text
from tests.small import RESULT_COLUMNS, TINY

YAML_TOKENS = (
    b"&a ", b"*a", b"<<: *a\n", b"[*a, *a, *a]", b"&a [x, x, x, x, x, x, x, x]\n", b"- ", b"? ",
    b": ", b"[", b"{", b"]", b"}", b"|\n", b">\n", b"!!python/object/apply:os.system ['true']",
    b"!!binary ", b"!!timestamp 2001-01-01", b"2001-01-01", b"!!set {a, b}", b"!!omap [a: 1]",
    b"!!float .inf", b"%YAML 1.2\n", b"---\n", b"...\n", b"\t", b"'", b'"', b"#", b"12:30:45",
    b"0o17", b"~", b"nc: ", b"names: ", b"path: ", b"train: ", b"yes", b"1e3", b".nan", b"valid: ",
    b"kpt_shape: ", b"images/*", b"**/", b"[a-", b"../", b"images: ", b"annotations: ",
)  # fmt: skip
JSON_TOKENS = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"NaN",
    b"Infinity", b"1e999", b'{"a":', b'"image_id": ', b'"bbox": ', b'"id": ', b"[[[[[[[[",
)  # fmt: skip

DATASET = b"""path: .
train: images
val: [images, list.txt]
nc: 2
names: {0: cat, 1: dog}
download: https://example.com/a.zip
"""
SECOND_YAML = b"names: [cat, dog]\nother: x\ntrain: images\nval: images\nnc: 2\n"

COCO = {
    "images": [{"id": 7, "file_name": "a.jpg", "width": 48, "height": 32}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1.0, 2, 10, 10], "area": 90.5,
         "iscrowd": 0, "segmentation": [[1, 2, 11, 2, 11, 12]]},
        {"id": 2, "image_id": 7, "category_id": 9, "bbox": [0, 0, 48, 32], "area": 1536,
         "iscrowd": 1, "segmentation": {"counts": [1, 2], "size": [32, 48]}},
    ],
    "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}],
}  # fmt: skip

COCO_MASKS = {
    **COCO,
    "annotations": [
        # 3 x 4 px at the left top, as runs and as their text; two parts.
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [0, 0, 3, 4], "segmentation":
         {"counts": [0, 4, 28, 4, 28, 4, 1468], "size": [32, 48]}},
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 3, 4], "segmentation":
         {"counts": "04l0000P]1", "size": [32, 48]}},
        {"id": 3, "image_id": 7, "category_id": 9, "bbox": [0, 0, 48, 32], "segmentation":
         [[1, 2, 11, 2, 11, 12], [20, 20.5, 30, 20.5, 20, 30]]},
    ],
}  # fmt: skip

NAMES = [name for name in RESULT_COLUMNS if not name.startswith("seconds/")]
RESULTS = [
    "\n".join([",".join(NAMES), *(f"{row}" + ",0.25" * (len(NAMES) - 1) for row in rows), ""])
    for rows in (range(1), range(3))
]


def sample(path: Path) -> Sample:
    """Return the image of `COCO` without objects."""
    return Sample(
        path.with_name("a.jpg"), 32, 48, np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    )


def read_coco_masks(path: Path) -> object:
    """Read the objects of a validation, and compare their masks with each other."""
    truth = read_coco_annotations(path, [sample(path)], ["cat", "dog"], masks=True).ground_truth(0)
    masks = truth.masks
    assert masks is not None and all(row.sum(dtype=np.int64) == 32 * 48 for row in masks.rows())
    return iou(masks, masks, truth.is_crowd)


def read_coco_dataset(path: Path) -> object:
    """Read all labels, as a scan does; the image itself need not be there."""
    (folder,) = COCO_FORMAT.find(path).get("", [AnnotatedFolder(COCO_FORMAT.name, path, path)])
    annotations = read_annotations(folder)
    found = []
    for image in annotated_images(annotations, annotations.class_names, path):
        with contextlib.suppress(BrokenLabelError):
            found.append(image.read_labels(len(annotations.class_names), (32, 48)))
    return found


def read_dataset(path: Path) -> object:
    (path.parent / "images").mkdir(exist_ok=True)
    (path.parent / "images" / "a.jpg").touch()
    (path.parent / "list.txt").write_text("images/a.jpg\n")
    return read_dataset_yaml(path, ("train", "val"))


def read_model(path: Path) -> object:
    return Detector(read_model_yaml(path, num_classes=2))


def read_neighbour(path: Path) -> object:
    """Look for the newest run where a neighbour's opt.yaml is the mutant."""
    weights = path.parent / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "last.safetensors").touch()
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


LABELS = [
    b"0 0.5 0.5 0.25 0.25\n2 0.1 0.1 0.3 0.1 0.2 0.4\n",
    b"1 .5 .5 1 1",
    b"",
    b"1 0 0 1 0 1 1\n" * 9,
]
LABEL_TOKENS = (
    b" ", b"\t", b"\x85", b"\xe2\x80\xa8", b"0 0.5 0.5 0.25 0.25\n", b"1e-320 ", b"\xef\xbb\xbf",
    b"1.005 ", b"-0.2 ", b"nan ", b"inf ", b"7 ",
)  # fmt: skip


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


_PLAIN = {
    "dataset-yaml": Reader(read_dataset, lambda: [DATASET, SECOND_YAML], "data.yaml", YAML_TOKENS),
    "hyperparameters": Reader(
        read_hyperparameters,
        lambda: [path.read_bytes() for path in sorted((PROJECT / "data/hyps").glob("*.yaml"))],
        "hyp.yaml",
        YAML_TOKENS,
    ),
    "model-yaml": Reader(
        read_model,
        lambda: [TINY.encode(), yaml.safe_dump(yaml.safe_load(TINY)).encode()],
        "model.yaml",
        (
            *YAML_TOKENS,
            b"Conv",
            b"C3",
            b"SPPF",
            b"Concat",
            b"Detect",
            b"nn.Upsample",
            b"nc",
            b"anchors",
        ),
        memory_bytes=1024 * MIB,
    ),
    "run-options": Reader(
        read_neighbour, lambda: [b"name: exp\nepochs: 3\nhyp: a.yaml\n"], "opt.yaml", YAML_TOKENS
    ),
    "image-list": Reader(
        lambda path: list_images([path]),
        lambda: [b"images/a.jpg\n./list.txt\n\n/c/d.jpeg\n", b"list.txt"],  # one must be there
        "list.txt",
    ),
    "labels": Reader(read_labels, lambda: LABELS, "a.txt", LABEL_TOKENS),
    "coco-dataset": Reader(
        read_coco_dataset,
        lambda: [json.dumps(COCO).encode(), json.dumps(COCO_MASKS, indent=1).encode()],
        "instances.json",
        (*JSON_TOKENS, b'"counts": ', b'"size": [', b"..", b"/", b"\\\\", b"1073741824", b"-1"),
    ),
    "coco-annotations": Reader(
        lambda path: read_coco_annotations(path, [sample(path)], ["cat", "dog"]),
        lambda: [json.dumps(COCO).encode(), json.dumps(COCO, indent=1).encode()],
        "instances.json",
        JSON_TOKENS,
    ),
    "coco-masks": Reader(
        read_coco_masks,
        lambda: [json.dumps(COCO_MASKS).encode(), json.dumps(COCO_MASKS, indent=1).encode()],
        "instances.json",
        (*JSON_TOKENS, b'"counts": ', b'"size": [32, 48]', b"null", b"1e10", b"4294967296", b"-1"),
    ),
    "comparison": Reader(
        lambda path: load_comparison(path.parent), comparison_document, COMPARISON, JSON_TOKENS
    ),
    "search-trials": Reader(
        read_search,
        write_search,
        "search.journal",
        (*JSON_TOKENS, b"\n", b'"op_code":5', b'"trial_id":1', b'"param_value_internal":1e400'),
    ),
    "results-csv": Reader(
        read_results,
        lambda: [text.encode() for text in RESULTS],
        "results.csv",
        tokens=(b",", b'"', b"\r", b"metrics/", b"train/", b"1e400"),
    ),
}

READERS = {name: replace(reader, seal=as_text) for name, reader in _PLAIN.items()}
