"""Read and validate hyper-parameters."""

import dataclasses
import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.files.yaml_files import find_yaml, read_yaml
from duet.utils.project import PROJECT
from duet.utils.strengths import STRENGTHS, AugmentConfig, LossGains

FOLDER = "data/hyps"
DEFAULT_HYPERPARAMETERS = PROJECT / FOLDER / "hyp.scratch-low.yaml"
MAX_ANCHORS = 32  # per level
AUTO_WEIGHTS = "auto"  # of cls_weights: from the numbers of objects
SHARES = ("ema_share", "warmup_share", "keep_head")


@dataclass(frozen=True)
class Hyperparameters:
    """The public YOLOv5 hyper-parameters; data/hyps/hyp.scratch-low.yaml explains each.

    A new one has a default without effect, so that a state written before it existed resumes.
    """

    lr0: float
    lrf: float
    momentum: float
    weight_decay: float
    warmup_epochs: float
    warmup_momentum: float
    warmup_bias_lr: float
    box: float
    cls: float
    cls_pw: float
    obj: float
    obj_pw: float
    iou_t: float
    anchor_t: float
    fl_gamma: float
    hsv_h: float
    hsv_s: float
    hsv_v: float
    degrees: float
    translate: float
    scale: float
    shear: float
    perspective: float
    flipud: float
    fliplr: float
    mosaic: float
    mixup: float
    copy_paste: float
    anchors: float = 0.0
    dfl: float = 1.5
    nbs: float = 64.0
    ema_share: float = 0.0
    warmup_share: float = 1.0
    keep_head: float = 0.0
    cls_weights: Any = ()  # a weight per class, AUTO_WEIGHTS, or () for none

    def __post_init__(self) -> None:
        object.__setattr__(self, "cls_weights", class_weights(self.cls_weights))
        numbers = {**dataclasses.asdict(self), "cls_weights": 0}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(f"{name}: {brief(value)} is not a number; write 0.01 or 1.0e-2")
            if not math.isfinite(value) or value < 0:
                raise UserError(f"{name}: {value}; accepted: a finite number of at least 0")
        if self.anchor_t <= 1:
            raise UserError(f"anchor_t: {self.anchor_t}; accepted: a ratio above 1")
        if self.anchors and not 1 <= round(self.anchors) <= MAX_ANCHORS:
            raise UserError(
                f"anchors: {self.anchors}; accepted: 0, or a number of anchors per level from 1 "
                f"to {MAX_ANCHORS}"
            )
        if self.nbs < 1:
            raise UserError(f"nbs: {self.nbs}; accepted: at least 1 image per optimizer step")
        for name in ("lrf", "momentum", "warmup_momentum", *SHARES):
            if getattr(self, name) > 1:
                raise UserError(f"{name}: {getattr(self, name)}; accepted: at most 1")
        self.augmentation()

    def augmentation(self) -> AugmentConfig:
        """Return the augmentation strengths; UserError if one is out of range."""
        return AugmentConfig(**{name: getattr(self, name) for name in STRENGTHS})

    def loss_gains(self) -> LossGains:
        return LossGains(
            box=self.box,
            objectness=self.obj,
            classification=self.cls,
            objectness_positive=self.obj_pw,
            classification_positive=self.cls_pw,
            max_side_ratio=self.anchor_t,
            focal_gamma=self.fl_gamma,
            distribution=self.dfl,
            # What only measures a training has no objects to count for auto.
            class_weights=() if self.cls_weights == AUTO_WEIGHTS else self.cls_weights,
        )


def class_weights(value: object) -> tuple[float, ...] | str:
    if value == AUTO_WEIGHTS:
        return AUTO_WEIGHTS
    weights = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not all(type(x) in (int, float) and 0 < x < math.inf for x in weights):
        raise UserError(
            f"cls_weights: {brief(value)}; accepted: auto, or a list of numbers above 0, one per "
            "class, as in [1, 2.5] or --override cls_weights=1,2.5"
        )
    return tuple(map(float, weights))


def override_word(name: str, value: object) -> str:
    text = ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)
    return f"{name}={text}"


def read_hyperparameters(path: str | Path, overrides: Sequence[str] = ()) -> Hyperparameters:
    """Read a hyper-parameter YAML; those with a default are optional.

    Args:
        overrides: "KEY=VALUE" pairs that replace values in the file.
    """
    path = find_yaml(str(path), FOLDER, prefix="hyp.")
    shipped = sorted(file.stem.removeprefix("hyp.") for file in (PROJECT / FOLDER).glob("*.yaml"))
    document = read_yaml("--hyp", path, f"accepted: a YAML file, or one of {', '.join(shipped)}")
    fields = {field.name: field.default for field in dataclasses.fields(Hyperparameters)}
    needed = {name for name, default in fields.items() if default is dataclasses.MISSING}
    unknown = sorted(set(document) - set(fields), key=str)
    missing = sorted(needed - set(document))
    named = (("unknown", unknown), ("missing", missing))
    faults = [f"{fault} {brief(names)}" for fault, names in named if names]
    if faults:
        raise UserError(f"--hyp {path}: {', '.join(faults)}; see {DEFAULT_HYPERPARAMETERS}")
    given = dict(_override(word, fields) for word in overrides)
    try:
        hyp = Hyperparameters(**document)
    except UserError as error:
        raise UserError(f"--hyp {path}: {error}") from error
    try:
        return dataclasses.replace(hyp, **given)
    except UserError as error:
        raise UserError(f"--override {error}") from error


def _override(word: str, known: Iterable[str]) -> tuple[str, Any]:
    """Parse KEY=VALUE; UserError if the name is unknown or the value is not a number."""
    name, separator, text = word.partition("=")
    if not separator or name not in known:
        near = difflib.get_close_matches(name, list(known), n=2)
        if name in known:
            raise UserError(f"--override {name}: no value; write {name}=VALUE")
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(known)}"
        raise UserError(f"--override {brief(word)}; accepted: HYPERPARAMETER=VALUE{hint}")
    try:
        if name == "cls_weights" and text != AUTO_WEIGHTS:
            return name, tuple(map(float, text.split(","))) if text else ()
        return name, text if name == "cls_weights" else float(text)
    except ValueError:
        raise UserError(f"--override {brief(word)}: {brief(text)} is not a number") from None
