# Runs on torch and oneflow.
# Numbers agree to 1e-3.
from duet import backend

backend.use()

import numpy as np

from duet.backend import nn, ops
from duet.models.heads.base import Head, LossSettings
from duet.utils.data.loading.batch import Targets
from duet.utils.geometry.detections import GroundTruth, SuppressionSettings
from tests.presence_head import PresenceHead

asked = sorted(Head.__abstractmethods__)
print("must be written: ", ", ".join(asked))

# Two images as the layers before the head return them; the first has objects of classes 1 and 3.
maps = ops.tensor(
    np.random.default_rng(0).normal(size=(2, 16, 8, 8)).astype(np.float32)
)
targets = Targets(
    np.array([0, 0]), np.array([1, 3]), np.full((2, 4), 0.5, np.float32)
)

head = PresenceHead(num_classes=5, in_channels=16, stride=8)
arrays = nn.state_arrays(head)
nn.load_state_arrays(
    head, {name: np.full_like(x, 0.1) for name, x in arrays.items()}
)

raw = head(maps)
print("forward:         ", [tuple(x.shape) for x in raw])
terms = head.make_loss(LossSettings(gains=None, image_size=64))(raw, targets)
print(
    "losses:          ",
    {k: round(float(ops.to_numpy(x)), 4) for k, x in terms.by_name.items()},
)

evaluator = head.make_evaluator(["a", "b", "c", "d", "e"])
for image, rows in enumerate(
    head.decode_above(raw, SuppressionSettings(0.25))
):
    found = head.finish(rows, letterbox=None, settings=None)
    mine = targets.image_index == image
    truth = GroundTruth(targets.class_index[mine], np.zeros((mine.sum(), 4)))
    evaluator.add(image, found, truth)
print("metrics:         ", head.metrics(evaluator.result()))
print("fitness:         ", head.fitness(evaluator.result()))
