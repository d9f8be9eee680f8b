# Runs on torch.
# Needs best.safetensors, bus.jpg.
# Shows lines with image 1/2, image 2/2.
# --8<-- [start:page]
import numpy as np
import torch

noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
model = torch.hub.load(".", "custom", path="best.safetensors", source="local")
model.conf = 0.4
results = model(["bus.jpg", noise], size=320)
results.print()
print(results.xyxy[0], results.pandas().xyxy[0])
results.save(save_dir="drawn")
# --8<-- [end:page]

import os

assert sorted(os.listdir("drawn")) == ["bus.jpg", "image1.jpg"]
