"""The settings of export.py, and its command line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from duet.backend.select import FRAMEWORKS
from duet.utils.cli.absent_flags import EXPORT
from duet.utils.cli.flags import (
    as_words,
    check_flags,
    flag,
    flags_of,
    read_flags,
    require_fraction,
    whole_from,
)
from duet.utils.errors import UserError
from duet.utils.export.formats import FORMATS, format_named
from duet.utils.export.metadata import LARGEST_BATCH, RAW_FORMS
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.image_limits import MAX_IMAGE_SIZE
from duet.utils.project import WEIGHTS_FILES

OPSET = 17
OPSETS, RAW_OPSETS = (13, 21), (12, 19)  # oldest and newest; RKNN-Toolkit2 takes 12 to 19
LARGEST_TOP = 10_000


def _require_sizes(name: str, value: tuple[int, ...]) -> None:
    if len(value) > 2:
        raise UserError(f"{name}: {len(value)} numbers; accepted: one, or height and width")
    for side in value:
        whole_from(32, MAX_IMAGE_SIZE)(name, side)


def _require_formats(name: str, value: tuple[Any, ...]) -> None:
    for each in value:
        if "," in each:
            words = " ".join(each.replace(",", " ").split())
            raise UserError(
                f"{name} {each}: separate formats with spaces, not commas: {name} {words}"
            )
        format_named(each)


@dataclass(frozen=True)
class ExportConfig:
    """The settings of one export; defaults are the public YOLOv5's but for --include."""

    weights: str = flag("model", "--weights", default="", type=str.strip, metavar="F",
        help="weights file of a training or of YOLOv5, not an exported one")  # fmt: skip
    include: tuple[str, ...] = flag("output", "--include", default=("onnx",), type=str, nargs="+",
        metavar="F", check=_require_formats,
        help=f"formats: {', '.join(row.name for row in FORMATS)}")  # fmt: skip
    sizes: tuple[int, ...] = flag("data", "--imgsz", "--img", "--img-size", default=(),
        type=int, nargs="+", metavar="PX", check=_require_sizes,
        help="side of the images, or height and width; default: the training size stored in the "
        "weights, else 640, or 224 for classifiers")  # fmt: skip
    batch_size: int = flag("data", "--batch-size", "--batch", default=1, metavar="N",
        check=whole_from(1, LARGEST_BATCH),
        help="images per call of the file")  # fmt: skip
    data: str = flag("data", "--data", default="", metavar="D",
        help="dataset whose val images calibrate --int8, and on which the metrics of the file and "
        "the model are compared")  # fmt: skip
    dynamic: bool = flag("output", "--dynamic", default=False,
        help="leave the number and the size of the images free")  # fmt: skip
    half: bool = flag("output", "--half", default=False,
        help="weights and feature maps in half precision")  # fmt: skip
    int8: bool = flag("output", "--int8", default=False,
        help="weights and feature maps in 8 bits, calibrated on --data")  # fmt: skip
    raw: str = flag("output", "--raw", default="", nargs="?", const=RAW_FORMS[0],
        choices=RAW_FORMS, help="for converters of boards (NPUs): an ONNX file of maps before "
        "decoding, one per level or split, with sigmoid or without")  # fmt: skip
    calibration_list: str = flag("output", "--calibration-list", default="", metavar="F",
        help="write the paths of up to 200 val images of --data to a text file, for other "
        "programs' calibration")  # fmt: skip
    nms: bool = flag("detection", "--nms", default=False,
        help="put NMS into the graph: it returns boxes, scores and classes, and masks if the model "
        "makes them")  # fmt: skip
    class_agnostic: bool = flag("detection", "--agnostic-nms", default=False,
        help="class-agnostic NMS: a box removes boxes of all classes")  # fmt: skip
    top_per_class: int = flag("detection", "--topk-per-class", default=100, metavar="N",
        check=whole_from(1, LARGEST_TOP), help="maximum number of detections per "
        "class")  # fmt: skip
    top_all: int = flag("detection", "--topk-all", default=100, metavar="N",
        check=whole_from(1, LARGEST_TOP), help="maximum number of detections per "
        "image")  # fmt: skip
    iou_threshold: float = flag("detection", "--iou-thres", "--iou", default=0.45, metavar="X",
        check=require_fraction, help="IoU threshold of NMS")  # fmt: skip
    confidence_threshold: float = flag("detection", "--conf-thres", "--conf", default=0.25,
        metavar="X", check=require_fraction, help="with --nms: lowest score of a "
        "detection")  # fmt: skip
    opset: int = flag("output", "--opset", default=OPSET, metavar="N", check=whole_from(1),
        help="version of the ONNX operator set")  # fmt: skip
    backend: str | None = flag("backend and device", "--backend", default=None,
        choices=tuple(FRAMEWORKS),
        help="framework of the model that the files are compared with; default: the one that is "
        "installed")  # fmt: skip
    device: str = flag("backend and device", "--device", default="cpu",
        help="cpu, or 0 for the first GPU; only --include engine uses it")  # fmt: skip

    def __post_init__(self) -> None:
        check_flags(self)
        if not self.weights:
            raise UserError(f"--weights is required: {WEIGHTS_FILES}")
        self._check_formats()
        if self.half and self.int8:
            raise UserError("--half and --int8: a file has one precision; give one of them")
        if self.int8 and not self.data:
            raise UserError("--int8 is calibrated on images; name their dataset with --data")
        if self.calibration_list and not self.data:
            raise UserError("--calibration-list lists images of --data; name a dataset")
        self._check_raw()
        self._check_suppression()

    def _check_raw(self) -> None:
        oldest, newest = RAW_OPSETS if self.raw else OPSETS
        if not oldest <= self.opset <= newest:
            how = "with --raw" if self.raw else "without --raw"
            raise UserError(f"--opset {self.opset}; accepted {how}: from {oldest} to {newest}")
        if self.raw and self.include != ("onnx",):
            raise UserError("--raw writes ONNX, which converters of boards read; omit --include")
        for ability in ("half", "int8", "dynamic", "nms"):
            if self.raw and getattr(self, ability):
                raise UserError(
                    f"--raw with --{ability}: boards take float32 graphs of one size without NMS, "
                    "which their converters quantize; leave one of them out"
                )

    def _check_suppression(self) -> None:
        names = (
            "class_agnostic", "top_per_class", "top_all", "iou_threshold", "confidence_threshold"
        )  # fmt: skip
        given = [name for name in names if getattr(self, name) != getattr(ExportConfig, name)]
        if given and not self.nms:
            word = flags_of(self)[given[0]].names[0]
            raise UserError(f"{word} is a setting of NMS in the graph; give --nms too")
        if "top_per_class" in given and self.class_agnostic:
            reason = "--agnostic-nms treats all classes as one"
            raise UserError(f"--topk-per-class: {reason}; give only --topk-all")

    def _check_formats(self) -> None:
        for name in self.include:
            row = format_named(name)
            for ability in ("half", "int8", "dynamic", "nms"):
                if getattr(self, ability) and ability not in row.flags:
                    fit = ", ".join(other.name for other in FORMATS if ability in other.flags)
                    raise UserError(
                        f"--include {name} does not support --{ability}; formats that do: {fit}"
                    )

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the network's input, once it is known."""
        return self.sizes[0], self.sizes[-1]

    @property
    def suppression(self) -> SuppressionSettings:
        """Settings of NMS in the graph; --topk-per-class applies to separate classes only."""
        return SuppressionSettings(
            self.confidence_threshold, self.iou_threshold, self.class_agnostic,
            max_detections=self.top_all, multi_label=False,
        )  # fmt: skip

    def words(self) -> list[str]:
        return as_words(replace(self, backend=None))

    @property
    def suffix(self) -> str:
        """Between the weights' name and the ending: files of --raw replace no others."""
        return "_raw" if self.raw else ""

    @property
    def precision(self) -> str:
        return "float16" if self.half else "int8" if self.int8 else "float32"


def parse_export_flags(arguments: Sequence[str] | None = None) -> ExportConfig:
    """Parse export.py's command line, by default sys.argv; exit with code 2 on an unknown flag."""
    about = "Write a trained model for other runtimes."
    return ExportConfig(**read_flags(ExportConfig, "export.py", about, arguments, EXPORT)[0])
