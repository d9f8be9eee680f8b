"""Flags of YOLOv5 and earlier versions that this one lacks, by name: what to do in their place."""

from __future__ import annotations

# Taken, with a line in place of an error: what they ask for happens anyway. Number of values.
ACCEPTED = {
    "--data": 1, "--dnn": 0, "--grid": 0, "--inplace": 0, "--linear-lr": 0, "--ndjson-file": 0,
    "--retina-masks": 0, "--save-img": 0, "--simplify": 0, "--verbose": 0,
}  # fmt: skip

_NO_TRACKER = "--loggers wandb, with its own variables such as WANDB_MODE and WANDB_ENTITY"
_CLASS_BY_CLASS = "changes nothing: figures are always shown class by class"
_NO_DNN = "changes nothing: ONNX files run in ONNX Runtime, other weights on --backend"
_NUMA = "leave it out; start the processes behind numactl, or bind them with torchrun"
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
    "--model": "--weights yolov5s.pt --task classify makes a classifier of it",
    "--pretrained": "--weights F starts from weights, --cfg F from scratch",
    "--decay": "--override weight_decay=0.00005",
    "--lr0": "--override lr0=0.001",
    "--verbose": _CLASS_BY_CLASS,
    "--local-rank": "torchrun tells each process its rank; --nproc N starts N of them",
    "--bucket": _NO_TRACKER,
    "--entity": _NO_TRACKER,
    "--upload-dataset": _NO_TRACKER,
    "--bbox-interval": _NO_TRACKER,
    "--artifact-alias": _NO_TRACKER,
    "--resume-evolve": "--evolve continues the search of the same --project and --name",
    "--evolve-population": "--evolve searches with Optuna, which needs no first population",
    "--bind-numa": _NUMA,
    "--replay": "leave it out; the log names batches whose numbers are not finite",
    "--ndjson-console": "each epoch is a line; results.jsonl has its figures",
    "--ndjson-file": "changes nothing: results.jsonl is always written",
}

VALIDATION = {
    "--bind-numa": _NUMA,
    "--merge": "leave it out; NMS keeps the best box and averages none",
    "--dnn": _NO_DNN,
    "--verbose": _CLASS_BY_CLASS,
    "--save-hybrid": "--save-txt writes what is found; the labels are those of the dataset",
}

DETECTION = {
    "--output": _FOLDER,
    "--save-dir": _FOLDER,
    "--save-img": "changes nothing: images with boxes are saved without it",
    "--data": "changes nothing: the class names are in the weights",
    "--dnn": _NO_DNN,
    "--visualize": "leave it out; feature maps are not drawn",
    "--update": "leave it out; every kind of weights of docs/en/weights.md is read as it is",
    "--retina-masks": "changes nothing: masks always have the resolution of the image",
    "--save-format": "--save-txt writes YOLO's boxes, --save-json those in pixels",
}

EXPORT = {
    "--grid": "changes nothing: the graph always decodes boxes",
    "--opset-version": "--opset",
    "--inplace": "changes nothing: the graph has no in-place operations",
    "--keras": "leave it out; --include tflite comes from the ONNX graph",
    "--optimize": "leave it out; for phones there are --include tflite, ncnn and coreml",
    "--per-tensor": "leave it out; --int8 always quantizes weights per channel",
    "--simplify": "changes nothing: each graph is already simplified when it is written",
    "--train": "leave it out; an exported file is for inference only; train from the weights",
    "--workspace": "leave it out; TensorRT may use all free memory",
    "--verbose": "changes nothing: differences are always shown",
    "--cache": "leave it out; nothing is kept between two exports",
    "--letterbox": "leave it out; scale and pad images as docs/examples/export does",
    "--efficient-nms": "--nms, which TensorRT runs too",
}
