# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector, images_to_tensor
from duet.models.graph import read_model_yaml

model = Detector(read_model_yaml("models/yolov5n.yaml"))
model.initialize(seed=0)
model.eval()
parameters = sum(np.prod(x.shape) for _, x in nn.named_parameters(model))
print(f"{parameters:,.0f} parameters, sides a multiple of {model.stride}")

image = np.zeros((1, 3, 128, 192), np.uint8)
with autograd.no_grad():
    maps = model(images_to_tensor(image, "cpu", "float32"))
for level in maps:
    print("raw map", tuple(level.shape))

rows = sum(np.prod(level.shape[:4]) for level in maps)
print(f"{rows} rows of {maps[0].shape[4]} numbers for one image")
# --8<-- [end:page]
# --8<-- [start:decode]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def decode(raw, stride, anchors):
    """Rows (B, A * H * W, 5 + C) in pixels of a raw map; anchors (A, 2)."""
    scores = sigmoid(raw)
    y, x = np.mgrid[0 : raw.shape[2], 0 : raw.shape[3]]
    cell = np.stack([x, y], axis=-1)  # (H, W, 2)
    centre = (2 * scores[..., :2] - 0.5 + cell) * stride
    size = (2 * scores[..., 2:4]) ** 2 * anchors[:, None, None]
    decoded = np.concatenate([centre, size, scores[..., 4:]], axis=-1)
    return decoded.reshape(len(raw), -1, raw.shape[-1])


anchors = np.array([[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119]])
anchors = np.vstack([anchors, [116, 90, 156, 198, 373, 326]])
parts = [
    decode(ops.to_numpy(level), stride, sides.reshape(3, 2))
    for level, stride, sides in zip(maps, (8, 16, 32), anchors, strict=True)
]
ours = ops.to_numpy(model.head.decode(maps))
assert np.allclose(np.concatenate(parts, axis=1), ours, atol=1e-3)
print("decoded", ours.shape, "- equal to Duet's")

bias = nn.state_arrays(model)["model.24.m.0.bias"].reshape(3, -1)
expected = 8 / (640 / 8) ** 2  # objects per image, over the cells
print(f"objectness begins at {sigmoid(bias[0, 4]):.5f}, near {expected:.5f}")
# --8<-- [end:decode]

values = {"rows": int(rows), "parameters": f"{parameters:,.0f}"}
