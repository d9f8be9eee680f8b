# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()

import numpy as np

from duet.backend import autograd, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml

PASSES = ((1.0, False, 32), (0.83, True, None), (0.67, False, 8))


def augmented(model, image):
    """Rows (N, 5 + C) of an image (1, 3, H, W) in [0, 1], of all passes."""
    width, found = image.shape[3], []
    for scale, mirrored, unused in PASSES:
        seen = image[..., ::-1].copy() if mirrored else image
        sides = [side * scale for side in seen.shape[2:]]
        if scale != 1:
            small = [int(side) for side in sides]
            seen = ops.to_numpy(ops.resize_bilinear(ops.tensor(seen), *small))
        padded = [-(-side // 32) * 32 for side in sides]
        right = [
            (0, int(n) - m)
            for n, m in zip(padded, seen.shape[2:], strict=True)
        ]
        seen = np.pad(
            seen, ((0, 0), (0, 0), *right), constant_values=np.float32(0.447)
        )
        maps = model(ops.tensor(seen))
        rows = ops.to_numpy(model.head.decode(maps))[0]
        strides = np.repeat(
            (8, 16, 32), [np.prod(one.shape[1:4]) for one in maps]
        )
        rows = rows[strides != unused]
        rows[:, :4] /= scale
        if mirrored:
            rows[:, 0] = width - rows[:, 0]
        print(f"scale {scale}: {seen.shape[2:]} px, {len(rows)} rows")
        found.append(rows)
    return np.concatenate(found)


model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=2))
model.initialize(seed=0)
model.eval()
image = np.random.default_rng(0).random((1, 3, 256, 320), np.float32)
with autograd.no_grad():
    rows = augmented(model, image)
from duet.models.inference.predictors import Augmented
from duet.utils.geometry.detections import SuppressionSettings

views = Augmented(model)
settings = SuppressionSettings(confidence_threshold=0.0, max_detections=9999)
with autograd.no_grad():
    (ours,) = views.decode_above(views(ops.tensor(image)), settings)
assert np.allclose(ours, rows, atol=1e-3)
print(f"{len(ours)} rows, as Duet's")
# --8<-- [end:page]

values = {"work": f"{sum(scale**2 for scale, *_ in PASSES):.2f}"}
