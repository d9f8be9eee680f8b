# Runs without a framework.
# Needs best.safetensors.
import json
from collections import Counter

from safetensors import safe_open

with safe_open("best.safetensors", "numpy") as file:
    arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(file.metadata()["duet"])

print("sections:", dict(Counter(sorted(name.partition("/")[0] for name in arrays))))
for name in ("ema/model.0.conv.weight", "ema/model.0.bn.running_var", "ema/model.4.m.0.bias"):
    print(f"{name:28}{arrays[name].dtype} {arrays[name].shape}")
print("layers:", *(layer[2] for part in ("backbone", "head") for layer in header["model"][part]))
print("classes:", *header["class_names"])
