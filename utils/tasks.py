"""The tasks: one description each of what a model is trained to do.

The other half of a task is its head (`models/heads/base.py`). What a single command needs of
a task is only named here (`Part`).
"""

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from duet.utils.errors import DatasetError
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


class Part(str):
    """What a command needs of a task, as MODULE:NAME: the command imports it. "": nothing."""

    def load(self) -> Any:
        """Import the module, and return what the name stands for."""
        module, _, name = self.partition(":")
        return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class ClassRows:
    """The arrays of a head that have a row for each class, once or several times over."""

    prefixes: tuple[str, ...]  # of their names
    before: int = 0  # rows before the classes'
    after: int = 0  # rows behind them


@dataclass(frozen=True)
class Task:
    """What a model is trained to do. The defaults of the parts are those of boxes.

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
        most_served: detections per image that the server allows; 0: the same as detect.py.
        items: a `BoxItems`: sample -> image and targets of a batch, and labels to score.
        view: a `Viewing`: how the network sees an image of no dataset.
        report: a `TaskReport`: tables and plots of a validation.
        result: an `ImageResult`: the detections in an image, for detect.py and the API.
        exported: an `ExportedForm`: what an exported file returns; "": export.py refuses the task.
        annotations: reads objects from a COCO file for val.py; "" if `refused_by_val`.
        legacy: the evaluator of YOLOv5's own metrics; "" if `refused_by_val`.
    """

    name: str
    head: str
    model: str = ""
    head_args: tuple[object, ...] = ("nc",)
    takes_levels: bool = True
    fitness: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=lambda: {"audit": NO_AUDIT})
    refused_by_val: Mapping[str, str] = field(default_factory=lambda: NO_FILES)
    own_flags: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ("dfl",)
    accumulates: bool = True
    most_served: int = 0
    items: Part = Part("duet.utils.data.loading.items:BOXES")
    view: Part = Part("duet.utils.data.image.letterbox:whole_view")
    report: Part = Part("duet.utils.report.task_reports:BOXES")
    result: Part = Part("duet.utils.detect.results.result:Result")
    exported: Part = Part("")
    annotations: Part = Part("")
    legacy: Part = Part("")

    def completed(self, values: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Return flag values with the task's defaults for those not given."""
        own = {name: value for name, value in self.defaults.items() if name not in given}
        return {**values, **own}

    def check_labels(
        self, samples: Any, name: str, is_of_folders: bool = False, weights: str = ""
    ) -> None:
        """Raise DatasetError for samples whose labels are not those of the task.

        Args:
            samples: a `SampleTable`.
            name: name of the dataset.
            is_of_folders: folder names are the labels.
            weights: the weights to validate, for the message; "" for a training.
        """
        try:
            self.items.load().require_labels(samples, name, is_of_folders)
        except DatasetError as error:
            if not weights:
                raise
            text = f"--weights {weights}: its task is {self.name}; --data {error}"
            raise DatasetError(text) from error


BOX_ANNOTATIONS = Part("duet.utils.data.sources.coco_annotations:read_coco_annotations")
LEGACY_BOXES = Part("duet.utils.evaluation.legacy:LegacyEvaluator")
DETECTION = Task(
    name="detect",
    head="Detect",
    model="models/yolov5s.yaml",
    head_args=("nc", "anchors"),
    fitness={"mAP_0.5": 0.1, "mAP_0.5:0.95": 0.9},
    refused={},
    refused_by_val={},
    exported=Part("duet.models.export.exported:ANCHOR_BOXES"),
    annotations=BOX_ANNOTATIONS,
    legacy=LEGACY_BOXES,
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
    exported=Part("duet.models.export.exported:ANCHOR_FREE_BOXES"),
    annotations=BOX_ANNOTATIONS,
    legacy=LEGACY_BOXES,
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
    most_served=1_000,  # each mask is drawn, packed and outlined
    items=Part("duet.utils.data.loading.items:MASKS"),
    report=Part("duet.utils.report.task_reports:MASKS"),
    result=Part("duet.utils.detect.results.result:MaskResult"),
    exported=Part("duet.models.export.exported:MASKED_BOXES"),
    annotations=Part("duet.utils.data.sources.coco_annotations:read_mask_annotations"),
    legacy=Part("duet.utils.evaluation.legacy:legacy_masks"),
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
    items=Part("duet.utils.data.loading.items:CLASSES"),
    view=Part("duet.utils.data.image.letterbox:centre_view"),
    report=Part("duet.utils.report.task_reports:CLASSES"),
    result=Part("duet.utils.detect.results.result:ClassResult"),
    exported=Part("duet.models.export.exported:CLASS_LOGITS"),
)  # fmt: skip
TASKS: dict[str, Task] = {
    task.name: task for task in (DETECTION, ANCHOR_FREE, SEGMENTATION, CLASSIFICATION)
}


def task_of_head(block: object) -> Task | None:
    return next((task for task in TASKS.values() if task.head == block), None)
