"""Public YOLOv5 flags that this version lacks, by name with hyphens: what to do in their place.

Whoever adds a flag removes its line.
"""

from __future__ import annotations

_NO_TRACKER = "figures go to results.csv and plots into the run's folder, nothing is sent anywhere"
_NO_TEXT = "--save-json writes all predictions into one file"
_SINGLE_CLASS = "write class 0 into all labels, and one name into the dataset YAML"

TRAINING = {
    "--rect": "training batches are square; those of validation are rectangular",
    "--nosave": "leave it out; --keep 1 keeps the fewest states",
    "--noval": "leave it out; each epoch ends with a validation",
    "--noautoanchor": "leave it out; anchors are those of --cfg or --weights and never change",
    "--noplots": "leave it out; a run always writes its plots",
    "--evolve": "train with several files for --hyp and compare their results.csv",
    "--image-weights": "leave it out; each epoch takes each image once",
    "--multi-scale": "leave it out; hyp's `scale` varies the size of objects",
    "--single-cls": _SINGLE_CLASS,
    "--quad": "leave it out; --img and --batch-size set what a step sees",
    "--label-smoothing": "leave it out; targets are 0 and 1",
    "--patience": "--epochs and --time-limit end a run; best.safetensors is its best epoch",
    "--save-period": "--keep N keeps the last N states, --save-steps N saves within epochs too",
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
    "--single-cls": _SINGLE_CLASS,
}

DETECTION = {
    "--data": "leave it out; the class names are in the weights",
    "--dnn": "leave it out; --backend says what runs the model",
    "--visualize": "leave it out; feature maps are not drawn",
    "--update": "leave it out; every kind of weights of docs/weights.md is read as it is",
    "--save-format": "--save-txt writes YOLO's boxes, --save-json those in pixels",
}
