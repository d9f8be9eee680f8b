"""The tasks as data: what each is called, which flags mean nothing to it, and how it is scored.

The other half of a task is its head (`models/heads/base.py`), which names it. What serves one
command only is a row in a table of that command, by the name of the task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from duet.utils.image_limits import MAX_IMAGE_SIZE
from duet.utils.project import PROJECT

NO_AUDIT = "an audit asks a model for the objects of images; give weights of a detector"
NO_BOXES = "a classifier finds no boxes"
SQUARE = "the images of classification are square"
NO_MOSAICS = "the images of classification are no mosaics"
CLASSIFIER_HYPERPARAMETERS = PROJECT / "data" / "hyps" / "hyp.classify.yaml"
# val.py alone, unless a task says that it has them.
NO_FILES = {
    "annotations": "models of this task find no objects",
    "save_json": "COCO has no form for models of this task",
    "legacy_metric": "models of this task are measured in one way",
    "save_txt": "models of this task make no label files",
}


@dataclass(frozen=True)
class Task:
    """What a model is trained for.

    Attributes:
        name: as --task has it.
        head: the name of its head in model YAMLs.
        model: the model YAML of a training that names none, from the project's folder.
        head_args: the args of its head in a model YAML that is made for it.
        takes_levels: its head takes the maps of several levels, as detectors have them.
        fitness: the weights of the figures, by the names of `Head.figure_names`, whose sum decides
            which weights, and which hyper-parameters, are best.
        refused: fields of any configuration that mean nothing to it, and the uses "audit" and
            "hub" if it does not serve them, each with the reason.
        refused_by_val: the same of val.py alone.
        own_flags: fields of `TrainConfig` that only this task uses.
        defaults: fields of `TrainConfig` whose default is another one for this task. Weights of a
            task with an `image_size` among them are used at the size of their training.
        unused: hyper-parameters that change nothing in its trainings, and are not searched.
        accumulates: add up the gradients of small batches, to those of 64 images per update.
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
    unused: tuple[str, ...] = ("randaugment", "dfl")
    accumulates: bool = True

    def completed(self, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """Return values of flags, with the task's defaults for those that were not given."""
        own = {name: value for name, value in self.defaults.items() if name not in given}
        return {**values, **own}

    def input_size(self, trained: object, usual: int) -> int:
        """Return the long side of images for the network where --img is left out.

        Args:
            trained: that of the training, as the weights have it, unchecked; None if they do not.
            usual: for a task that has none of its own.
        """
        if "image_size" not in self.defaults:
            return usual
        if isinstance(trained, int) and 0 < trained <= MAX_IMAGE_SIZE:
            return trained
        return int(self.defaults["image_size"])


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
        "autobalance": "the loss of an anchor-free model has no objectness to weigh by level",
        "no_auto_anchor": "an anchor-free model has no anchors",
        "label_smoothing": "an anchor-free model learns class scores that say how well a box fits",
    },
    refused_by_val={},
    unused=("randaugment", "obj", "obj_pw", "cls_pw", "fl_gamma", "iou_t", "anchor_t", "anchors"),
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
        "tile": "masks that are found in tiles cannot be put together",
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
        "quad": "four images would have one class",
        "rect": SQUARE,
        "bbox_iou_optim": "the loss of classification has no boxes",
        "autobalance": "the loss of classification has one level",
        "no_auto_anchor": "classifiers have no anchors",
        "close_mosaic": NO_MOSAICS,
        "mosaic_window": NO_MOSAICS,
        "single_class": "a classifier of one class has nothing to tell apart",
        "confidence_threshold": "the five most probable classes are listed, whatever their scores",
        "classes": "a classifier scores all its classes",
        "iou_threshold": NO_BOXES,
        "class_agnostic": NO_BOXES,
        "max_detections": NO_BOXES,
        "tile": "a classifier sees an image as a whole",
        "track": NO_BOXES,
        "square": SQUARE,
        "save_crop": NO_BOXES,
        "nms": "a classifier finds no boxes to choose from",
        "audit": NO_AUDIT,
        "hub": f"the hub's results are boxes, and {NO_BOXES}; `from duet import load` takes its "
        "weights, as docs/en/api.md shows",
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
        "degrees", "translate", "shear", "perspective", "mosaic", "mosaic9", "mixup",
        "copy_paste",
    ),
    accumulates=False,
)  # fmt: skip
TASKS: dict[str, Task] = {
    task.name: task for task in (DETECTION, ANCHOR_FREE, SEGMENTATION, CLASSIFICATION)
}


def task_of_head(block: Any) -> Task | None:
    """Return the task whose head has this name in model YAMLs."""
    return next((task for task in TASKS.values() if task.head == block), None)
