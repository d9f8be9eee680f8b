# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import autograd, nn
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

values = {"rows": int(rows), "parameters": f"{parameters:,.0f}"}
