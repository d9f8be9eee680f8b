"""Table of tasks: names, fitness, and flags that do not apply.

The other half of a task is its head (`models/heads/base.py`). Data for a single command is kept in
a table of that command, by task name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from duet.utils.project import PROJECT

NO_AUDIT = "an audit needs a model that detects objects; use weights of a detector"
NO_BOXES = "classifiers predict no boxes"
SQUARE = "classification images are always square"
NO_MOSAICS = "classification uses no mosaics"
CLASSIFIER_HYPERPARAMETERS = PROJECT / "data" / "hyps" / "hyp.classify.yaml"
# Defaults for val.py.
NO_FILES = {
    "annotations": "not available for this task, which detects no objects",
    "save_json": "COCO defines no results format for this task",
    "legacy_metric": "this task has only one kind of metrics",
    "save_txt": "there is no label file format for this task",
}


@dataclass(frozen=True)
class Task:
    """What a model is trained to do.

    Attributes:
        name: value of --task.
        head: name of its head in model YAMLs.
        model: default model YAML, relative to the project's folder.
        head_args: args of its head in generated model YAMLs.
        takes_levels: whether its head takes maps of several levels, like detectors.
        fitness: weights of the metrics in `Head.metric_names`, whose weighted sum selects the best
            weights and hyper-parameters.
        refused: reasons by config field that does not apply; may include the uses "audit" and
            "hub".
        refused_by_val: the same for val.py only.
        own_flags: fields of `TrainConfig` that only this task uses.
        defaults: task-specific defaults of `TrainConfig` fields.
        unused: hyper-parameters without effect on its trainings, excluded from searches.
        accumulates: whether small batches accumulate gradients up to 64 images per update.
    """

    name: str
    head: str
    model: str = ""
    head_args: tuple[Any, ...] = ("nc",)
    takes_levels: bool = True
    fitness: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=lambda: {"audit": NO_AUDIT})
    refused_by_val: Mapping[str, str] = field(default_factory=lambda: NO_FILES)
    own_flags: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ("dfl",)
    accumulates: bool = True

    def completed(self, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """Return flag values with the task's defaults for those not given."""
        own = {name: value for name, value in self.defaults.items() if name not in given}
        return {**values, **own}


DETECTION = Task(
    name="detect",
    head="Detect",
    model="models/yolov5s.yaml",
    head_args=("nc", "anchors"),
    fitness={"mAP_0.5": 0.1, "mAP_0.5:0.95": 0.9},
    refused={},
    refused_by_val={},
)
ANCHOR_FREE = Task(
    name="detect-anchor-free",
    head="DetectAnchorFree",
    model="models/yolov5su.yaml",
    fitness={"mAP_0.5:0.95": 1.0},
    refused={
        "no_auto_anchor": "anchor-free models have no anchors",
        "label_smoothing": "anchor-free models train class scores on box quality instead",
    },
    refused_by_val={},
    unused=("obj", "obj_pw", "cls_pw", "fl_gamma", "iou_t", "anchor_t", "anchors"),
)
SEGMENTATION = Task(
    name="segment",
    head="Segment",
    model="models/yolov5s-seg.yaml",
    head_args=("nc", "anchors", 32, 256),
    fitness={
        "mAP_0.5(B)": 0.1, "mAP_0.5:0.95(B)": 0.9, "mAP_0.5(M)": 0.1, "mAP_0.5:0.95(M)": 0.9,
    },
    refused={
        "tile": "masks from tiles cannot be merged",
    },
    refused_by_val={},
    own_flags=("mask_ratio", "no_overlap"),
)  # fmt: skip
CLASSIFICATION = Task(
    name="classify",
    head="Classify",
    model="models/yolov5s-cls.yaml",
    takes_levels=False,
    fitness={"accuracy_top1": 1.0},
    refused={
        "rect": SQUARE,
        "bbox_iou_optim": "the classification loss has no boxes",
        "no_auto_anchor": "classifiers have no anchors",
        "close_mosaic": NO_MOSAICS,
        "single_class": "a classifier with one class has nothing to distinguish",
        "confidence_threshold": "the top five classes are listed regardless of their scores",
        "classes": "classifiers always score all classes",
        "iou_threshold": NO_BOXES,
        "class_agnostic": NO_BOXES,
        "max_detections": NO_BOXES,
        "tile": "classifiers process images as a whole",
        "track": NO_BOXES,
        "square": SQUARE,
        "save_crop": NO_BOXES,
        "nms": NO_BOXES,
        "audit": NO_AUDIT,
        "hub": f"hub results are boxes, and {NO_BOXES}; use `duet.load` instead",
        "line_thickness": NO_BOXES,
    },
    own_flags=("dropout", "cutoff"),
    defaults={
        "hyp": CLASSIFIER_HYPERPARAMETERS,
        "image_size": 224,
        "batch_size": 64,
        "optimizer": "Adam",
        "label_smoothing": 0.1,
    },
    unused=(
        "box", "obj", "obj_pw", "cls", "cls_pw", "dfl", "fl_gamma", "iou_t", "anchor_t", "anchors",
        "degrees", "translate", "shear", "perspective", "mosaic", "mixup",
        "copy_paste",
    ),
    accumulates=False,
)  # fmt: skip
TASKS: dict[str, Task] = {
    task.name: task for task in (DETECTION, ANCHOR_FREE, SEGMENTATION, CLASSIFICATION)
}


def task_of_head(block: Any) -> Task | None:
    """Return the task with this head in model YAMLs."""
    return next((task for task in TASKS.values() if task.head == block), None)
