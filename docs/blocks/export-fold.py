# Runs on torch and oneflow.
# --8<-- [start:page]
import numpy as np

from duet import backend

backend.use()
from duet.backend import nn
from duet.models.stored import load_detector
from duet.utils.weights.load import load_weights

weights = load_weights("runs/train/exp/weights/best.safetensors")
before = nn.state_arrays(load_detector(weights, "cpu"))
after = nn.state_arrays(load_detector(weights, "cpu", fold=True))


def part(name):
    return before[f"model.0.{name}"].astype(float)


factor = part("bn.weight") / np.sqrt(part("bn.running_var") + 1e-3)
weight = part("conv.weight") * factor[:, None, None, None]
bias = part("bn.bias") - part("bn.running_mean") * factor
assert np.allclose(weight, after["model.0.conv.weight"], atol=1e-6)
assert np.allclose(bias, after["model.0.conv.bias"], atol=1e-6)
print(f"{len(before)} arrays before, {len(after)} after folding")
# --8<-- [end:page]
