"""Flags of YOLOv5 and earlier versions that this one lacks, by name: what to do in their place.

Whoever adds a flag removes its line.
"""

from __future__ import annotations

_NO_TRACKER = "--loggers wandb, with its own variables such as WANDB_MODE and WANDB_ENTITY"

TRAINING = {
    "--model": "--weights yolov5s.pt --task classify makes a classifier of it",
    "--pretrained": "--weights F starts from weights, --cfg F from scratch",
    "--decay": "--override weight_decay=0.00005",
    "--lr0": "--override lr0=0.001",
    "--verbose": "leave it out; figures are always shown class by class",
    "--local-rank": "torchrun tells each process its rank; --nproc N starts N of them",
    "--bucket": _NO_TRACKER,
    "--entity": _NO_TRACKER,
    "--upload-dataset": _NO_TRACKER,
    "--bbox-interval": _NO_TRACKER,
    "--artifact-alias": _NO_TRACKER,
    "--resume-evolve": "--evolve continues the search of the same --project and --name",
    "--evolve-population": "--evolve searches with Optuna, which needs no first population",
    "--replay": "leave it out; the log names batches whose numbers are not finite",
    "--ndjson-console": "each epoch is a line; results.jsonl has its figures",
    "--ndjson-file": "results.jsonl is always written",
}

VALIDATION = {
    "--dnn": "leave it out; --backend says what runs the model",
    "--verbose": "leave it out; figures are always shown class by class",
    "--save-hybrid": "--save-txt writes what is found; the labels are those of the dataset",
}

DETECTION = {
    "--data": "leave it out; the class names are in the weights",
    "--dnn": "leave it out; --backend says what runs the model",
    "--visualize": "leave it out; feature maps are not drawn",
    "--update": "leave it out; every kind of weights of docs/en/weights.md is read as it is",
    "--retina-masks": "leave it out; masks always have the resolution of the image",
    "--save-format": "--save-txt writes YOLO's boxes, --save-json those in pixels",
}

EXPORT = {
    "--inplace": "leave it out; the graph has no in-place operations",
    "--keras": "leave it out; --include tflite comes from the ONNX graph",
    "--optimize": "leave it out; for phones there are --include tflite, ncnn and coreml",
    "--per-tensor": "leave it out; --int8 always quantizes weights per channel",
    "--simplify": "leave it out; each graph is already simplified when it is written",
    "--train": "leave it out; an exported file is for inference only; train from the weights",
    "--workspace": "leave it out; TensorRT may use all free memory",
    "--verbose": "leave it out; differences are always shown",
    "--cache": "leave it out; nothing is kept between two exports",
}
