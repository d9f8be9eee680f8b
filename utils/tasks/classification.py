"""Classification: one class for each image as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from utils.cli.run_config import MAX_IMAGE_SIZE
from utils.data.image.letterbox import centre_region, crop
from utils.data.image.view import View
from utils.data.loading.items import CLASSES
from utils.data.sources.class_folders import fill_images
from utils.data.sources.samples import SampleTable
from utils.errors import DatasetError, UserError
from utils.project import PROJECT
from utils.tasks.task import NO_AUDIT, Task

NO_BOXES = "a classifier finds no boxes"
HYPERPARAMETERS = PROJECT / "data" / "hyps" / "hyp.classify.yaml"


class Classification(Task):
    """Tell the class of each image."""

    name = "classify"
    head = "Classify"
    model = "models/yolov5s-cls.yaml"
    own_flags = ("dropout", "cutoff")
    accumulates = False
    head_args = ("nc",)
    refused: ClassVar[Mapping[str, str]] = {
        "quad": "four images would have one class",
        "rect": "the images of classification are square",
        "bbox_iou_optim": "the loss of classification has no boxes",
        "autobalance": "the loss of classification has one level",
        "no_auto_anchor": "classifiers have no anchors",
        "close_mosaic": "the images of classification are no mosaics",
        "mosaic_window": "the images of classification are no mosaics",
        "single_class": "a classifier of one class has nothing to tell apart",
        "confidence_threshold": "the five most probable classes are told, whatever their scores",
        "classes": "a classifier tells all its classes apart",
        "iou_threshold": NO_BOXES,
        "class_agnostic": NO_BOXES,
        "max_detections": NO_BOXES,
        "tile": "a classifier sees an image as a whole",
        "track": NO_BOXES,
        "square": "the images of classification are square",
        "save_crop": NO_BOXES,
        "nms": "a classifier finds no boxes to choose from",
        "letterbox": "a classifier takes the middle of an image, which the graph does not cut out",
        "audit": NO_AUDIT,
        "hub": f"the hub's results are boxes, and {NO_BOXES}; `from duet import load` takes its "
        "weights, as docs/en/api.md shows",
        "line_thickness": NO_BOXES,
    }
    unused = (
        "box", "obj", "obj_pw", "cls", "cls_pw", "fl_gamma", "iou_t", "anchor_t", "anchors",
        "degrees", "translate", "shear", "perspective", "mosaic", "mosaic9", "mixup",
        "copy_paste",
    )  # fmt: skip
    val_items = CLASSES
    fitness: ClassVar[Mapping[str, float]] = {"accuracy_top1": 1.0}
    defaults: ClassVar[Mapping[str, Any]] = {
        "hyp": HYPERPARAMETERS,
        "image_size": 224,
        "batch_size": 64,
        "optimizer": "Adam",
        "label_smoothing": 0.1,
    }

    def input_size(self, trained: object) -> int:
        if isinstance(trained, int) and 0 < trained <= MAX_IMAGE_SIZE:
            return trained
        return int(self.defaults["image_size"])

    def about(self, document: Mapping[str, Any]) -> list[str]:
        parts = (document.get(name) for name in ("backbone", "head"))
        layers = sum(len(part) for part in parts if isinstance(part, list))
        return [f"cutoff: {layers}, the layers of a detector with the head as the last one"]

    def made_of(self, document: Mapping[str, Any], cutoff: int) -> Mapping[str, Any]:
        layers = [*document["backbone"], *document["head"]]
        number = cutoff or len(document["backbone"])
        if not 2 <= number <= len(layers):
            raise UserError(
                f"--cutoff {number}; the model has {len(layers)} layers: a number from 2 to "
                f"{len(layers)} is needed"
            )
        own = {name: value for name, value in document.items() if name != "anchors"}
        head = [-1, 1, self.head, list(self.head_args)]
        return {**own, "backbone": layers[: number - 1], "head": [head]}

    def check_samples(self, samples: SampleTable, name: str, is_of_folders: bool = False) -> None:
        if not fill_images(samples):
            raise DatasetError(
                f"{name}: its labels are of objects in parts of images, and a classifier needs one "
                "class for each image: folders named for classes, as train/cat and val/cat; or "
                "take a detector, which train.py makes with --task detect, or --cfg yolov5s.yaml"
            )

    def view(
        self,
        image: np.ndarray,
        image_size: int,
        stride: int,
        fixed_size: tuple[int, int] | None = None,
    ) -> View:
        """Return the middle of an image, of the shape of the network's input."""
        output_size = fixed_size or (image_size, image_size)
        region = centre_region(image.shape[:2], output_size)
        pixels, placement = crop(image, region, output_size), region.placement(output_size)
        return View(pixels, placement, (region.top, region.left))


CLASSIFICATION = Classification()
