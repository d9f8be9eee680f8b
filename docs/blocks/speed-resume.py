# Runs on torch and oneflow.
# Shows lines with suspended, arrays.
import numpy as np

import duet
from duet.utils.processes.suspend import Suspended
from duet.utils.weights.checkpoint import load_checkpoint

flags = {
    "data": "shapes",
    "cfg": "yolov5n",
    "weights": "",
    "img": 64,
    "batch": 4,
}
flags |= {"epochs": 1, "fraction": 0.05, "workers": 0, "device": "cpu"}
flags |= {"noval": True, "noplots": True}

duet.train(**flags, name="whole")
try:
    duet.train(**flags, name="parts", time_limit=1e-6)  # minutes
except Suspended as message:
    print(str(message).partition(":")[0])
duet.train(resume="runs/train/parts")

whole, parts = (
    load_checkpoint(f"runs/train/{name}/weights/last.safetensors")
    for name in ("whole", "parts")
)
for section in ("model", "ema", "optimizer"):
    one, other = getattr(whole, section), getattr(parts, section)
    equal = all(np.array_equal(one[name], other[name]) for name in one)
    print(f"{section}: {len(one)} arrays,", "equal" if equal else "not equal")
