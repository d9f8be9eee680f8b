"""Public YOLOv5 flags that this version lacks, by name with hyphens: what to do in their place.

Whoever adds a flag removes its line.
"""

from __future__ import annotations

_NO_TRACKER = "figures go to results.csv and plots into the run's folder, nothing is sent anywhere"
_NO_TEXT = "--save-json writes all predictions into one file"

TRAINING = {
    "--local-rank": "torchrun tells each process its rank; --nproc N starts N of them",
    "--bucket": _NO_TRACKER,
    "--entity": _NO_TRACKER,
    "--upload-dataset": _NO_TRACKER,
    "--bbox-interval": _NO_TRACKER,
    "--artifact-alias": _NO_TRACKER,
}

VALIDATION = {
    "--dnn": "leave it out; --backend says what runs the model",
    "--verbose": "leave it out; figures are always shown class by class",
    "--save-txt": _NO_TEXT,
    "--save-conf": _NO_TEXT,
    "--save-hybrid": _NO_TEXT,
}

DETECTION = {
    "--data": "leave it out; the class names are in the weights",
    "--dnn": "leave it out; --backend says what runs the model",
    "--visualize": "leave it out; feature maps are not drawn",
    "--update": "leave it out; every kind of weights of docs/weights.md is read as it is",
    "--save-format": "--save-txt writes YOLO's boxes, --save-json those in pixels",
}
