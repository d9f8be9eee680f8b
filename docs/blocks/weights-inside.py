# Runs without a framework.
import json
from collections import Counter

from safetensors import safe_open

WEIGHTS = "runs/train/exp/weights/best.safetensors"
with safe_open(WEIGHTS, "numpy") as file:
    names = list(file.keys())
    arrays = {name: file.get_tensor(name) for name in names}
    header = json.loads(file.metadata()["duet"])

print(
    "sections:",
    dict(Counter(sorted(name.partition("/")[0] for name in arrays))),
)
for name in (
    "ema/model.0.conv.weight",
    "ema/model.0.bn.running_var",
    "ema/model.24.m.0.bias",
):
    print(f"{name:28}{arrays[name].dtype} {arrays[name].shape}")
layers = [
    layer[2]
    for part in ("backbone", "head")
    for layer in header["model"][part]
]
print("layers:", *layers[:6], "...", layers[-1])
print("classes:", *header["class_names"])
