"""Flags of the public YOLOv5, old and new, that do not exist here, with their replacements."""

import argparse
import logging
from collections.abc import Mapping

# Accepted with a log line, because their effect is the default; values: number of arguments.
ACCEPTED = {
    "--data": 1, "--dnn": 0, "--grid": 0, "--inplace": 0, "--linear-lr": 0, "--ndjson-file": 0,
    "--retina-masks": 0, "--save-img": 0, "--simplify": 0, "--verbose": 0,
}  # fmt: skip

log = logging.getLogger("flags")

VALUE = "VALUE"  # in a replacement: stands for the given value

_NO_TRACKER = "--loggers wandb, with its own variables such as WANDB_MODE and WANDB_ENTITY"
_CLASS_BY_CLASS = "changes nothing: metrics are always shown per class"
_NO_DNN = "changes nothing: ONNX files run in ONNX Runtime, other weights on --backend"
_FOLDER = "--project names the folder that holds the runs"

TRAINING = {
    "--adam": "--optimizer Adam",
    "--notest": "--noval",
    "--linear-lr": "changes nothing: the learning rate falls linearly without --cos-lr",
    "--cache-images": "--cache",
    "--img-weights": "--image-weights",
    "--logdir": _FOLDER,
    "--log-imgs": _NO_TRACKER,
    "--log-artifacts": _NO_TRACKER,
    "--model": "--cfg VALUE for a model YAML, --weights VALUE for weights",
    "--pretrained": "--weights F starts from weights, --cfg F from scratch",
    "--decay": "--override weight_decay=VALUE",
    "--lr0": "--override lr0=VALUE",
    "--lr": "--override lr0=VALUE",
    "--learning-rate": "--override lr0=VALUE",
    "--verbose": _CLASS_BY_CLASS,
    "--local-rank": "torchrun sets each process's rank; --nproc N starts N processes",
    "--bucket": _NO_TRACKER,
    "--entity": _NO_TRACKER,
    "--upload-dataset": _NO_TRACKER,
    "--bbox-interval": _NO_TRACKER,
    "--artifact-alias": _NO_TRACKER,
    "--resume-evolve": "--evolve continues the search of the same --project and --name",
    "--evolve-population": "--evolve searches with Optuna, which needs no initial population",
    "--quad": "leave it out, or double --img and take a quarter of --batch-size",
    "--ndjson-console": "each epoch is one line; results.jsonl has the metrics",
    "--ndjson-file": "changes nothing: results.jsonl is always written",
}

VALIDATION = {
    "--merge": "leave it out; NMS keeps the best box and averages none",
    "--dnn": _NO_DNN,
    "--verbose": _CLASS_BY_CLASS,
    "--save-hybrid": "--save-txt writes detections only; labels are in the dataset",
}

DETECTION = {
    "--output": _FOLDER,
    "--save-dir": _FOLDER,
    "--save-img": "changes nothing: images with boxes are saved without it",
    "--data": "changes nothing: the class names are in the weights",
    "--dnn": _NO_DNN,
    "--update": "leave it out; weights of YOLOv5 are read directly",
    "--retina-masks": "changes nothing: masks always have the resolution of the image",
    "--save-format": "--save-txt writes boxes in YOLO format, --save-json in pixels",
    "--resize": "leave it out; images are shrunk bilinearly, as in YOLOv5",
}

EXPORT = {
    "--grid": "changes nothing: the graph always decodes boxes",
    "--opset-version": "--opset",
    "--inplace": "changes nothing: the graph has no in-place operations",
    "--keras": "leave it out; --include tflite converts the ONNX graph",
    "--optimize": "leave it out; for phones use --include tflite, ncnn or coreml",
    "--per-tensor": "leave it out; --int8 always quantizes weights per channel",
    "--simplify": "changes nothing: graphs are always simplified",
    "--train": "leave it out; exported files are for inference only; train from the weights",
    "--workspace": "leave it out; TensorRT may use all free memory",
    "--verbose": "changes nothing: differences are always shown",
    "--cache": "leave it out; nothing is cached between exports",
}


class _Accepted(argparse.Action):
    """A flag without effect: logs the reason once, however often it is parsed."""

    def __call__(
        self, parser: object, namespace: object, values: object, option: str | None = None
    ) -> None:
        if self.const is not None:
            log.info("%s %s", option, self.const)
        self.const = None


def accept_without_effect(parser: argparse.ArgumentParser, absent: Mapping[str, str]) -> None:
    """Add those of the absent flags that are accepted; each logs its replacement."""
    for name in ACCEPTED.keys() & absent.keys():
        spellings = {name, "--" + name[2:].replace("-", "_")}
        parser.add_argument(
            *spellings, action=_Accepted, const=absent[name], nargs=ACCEPTED[name],
            dest=argparse.SUPPRESS, default=argparse.SUPPRESS, help=argparse.SUPPRESS,
        )  # fmt: skip
