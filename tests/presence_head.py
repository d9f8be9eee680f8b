"""A second task, only for tests: which classes an image shows, and how many objects.

It differs from detection wherever that could be taken for granted: two losses, one figure, no
anchors in its YAML, one raw output, no boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.backend import nn, ops
from duet.models.blocks import registry
from duet.models.blocks.registry import Block, Cost, LayerPlan, LayerRequest
from duet.models.heads.base import Head, Loss, LossSettings, LossTerms
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.report.task_reports import TaskReport
from duet.utils.tasks import TASKS, ClassRows, Part, Task

YAML = """
nc: 5
depth_multiple: 1.0
width_multiple: 1.0
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [-1, 1, Presence, [nc]]
"""


PRESENCE = Task(
    "presence",
    head="Presence",
    fitness={"accuracy": 1.0},
    report=Part("tests.presence_head:REPORT"),
)


class Present(NamedTuple):
    """What is found in an image."""

    scores: np.ndarray  # (C,)


class PresenceHead(Head):
    """A 1x1 convolution to C classes and a count, averaged over the image."""

    task = PRESENCE
    loss_names = {"presence": "pres", "count": "num"}
    metric_names = {"accuracy": "acc"}
    nothing_found = Present(np.zeros(0, np.float32))

    def __init__(self, num_classes: int, in_channels: int, stride: int) -> None:
        super().__init__()
        self.num_classes, self.strides = num_classes, (stride,)
        self.conv = nn.Conv2d(in_channels, num_classes + 1, 1)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        classes, channels, stride = request.args[0], request.in_channels[0], request.in_strides[0]
        return LayerPlan(
            lambda: cls(classes, channels, stride),
            classes + 1,
            stride,
            ((stride, Cost((classes + 1) * channels, biases=classes + 1)),),
        )

    def forward(self, *maps: Any) -> tuple[Any, ...]:
        """(B, in, H, W) -> ((B, C + 1),): logits of the classes, the number of objects."""
        x = self.conv(maps[0])
        return (ops.mean(x.reshape(x.shape[0], x.shape[1], -1), 2),)

    def class_rows(self) -> ClassRows:
        return ClassRows(("conv.",), after=1)

    def make_loss(self, settings: LossSettings) -> PresenceLoss:
        return PresenceLoss(self.num_classes)

    def decode(self, raw: Sequence[Any]) -> Any:
        return ops.sigmoid(raw[0][:, : self.num_classes])

    def decode_above(self, raw: Sequence[Any], settings: SuppressionSettings) -> list[np.ndarray]:
        return list(ops.to_numpy(self.decode(raw)))

    def finish_images(self, decoded: Sequence[np.ndarray], places: Any, settings: Any) -> Any:
        return list(map(Present, decoded))

    def make_evaluator(self, class_names: Sequence[str]) -> PresenceEvaluator:
        return PresenceEvaluator()

    @classmethod
    def metrics(cls, result: float) -> dict[str, float]:
        return {"accuracy": result}


class PresenceLoss(Loss):
    """Binary cross-entropy of the classes, squared error of the number of objects."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def compiled(self, compile_: Any) -> PresenceLoss:
        return self

    def __call__(self, raw: Sequence[Any], targets: Any, whole: Any = None) -> LossTerms:
        (outputs,) = raw
        images = outputs.shape[0] if whole is None else whole.num_images
        wanted = np.zeros(outputs.shape, ops.dtype_of(outputs))
        wanted[targets.image_index, targets.class_index] = 1
        np.add.at(wanted[:, -1], targets.image_index, 1)
        truth = ops.tensor(wanted, ops.device_of(outputs))
        classes = self.num_classes
        presence = ops.bce_with_logits(outputs[:, :classes], truth[:, :classes])
        count = ops.mean((outputs[:, classes] - truth[:, classes]) ** 2)
        part = outputs.shape[0] / images  # of a mean over all images
        terms = {"presence": presence * part, "count": count * part}
        return LossTerms(terms, sum(terms.values()) * images)


class PresenceEvaluator:
    """The share of the classes and images whose presence was predicted."""

    def __init__(self) -> None:
        self._right: list[float] = []

    def add(self, image_id: int, found: Present, truth: Any) -> None:
        is_there = np.isin(np.arange(len(found.scores)), truth.class_index)
        self._right.append(float(np.mean((found.scores > 0.5) == is_there)))

    def result(self) -> float:
        return float(np.mean(self._right))


def table_of(result: float) -> str:
    return f"accuracy {result:.4f}"


def plot(result: float, samples: Any, folder: Path) -> None:
    (folder / "accuracy.txt").write_text(table_of(result), encoding="utf-8")


REPORT = TaskReport(table_of, plot)


def register(monkeypatch: Any) -> None:
    """Make `Presence` a block of model YAMLs for one test."""
    monkeypatch.setitem(registry._BLOCKS, "Presence", Block(PresenceHead, False, False))
    monkeypatch.setitem(TASKS, "presence", PRESENCE)
