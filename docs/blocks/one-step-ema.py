# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.training.optimizer import decay_after


def updates_until_halfway(start):
    """A weight jumps from 0 to 1: when does its average reach 0.5?"""
    average, update = 0.0, start
    while average < 0.5:
        update += 1
        decay = decay_after(update)
        average = decay * average + (1 - decay) * 1.0
    return update - start


# --8<-- [start:page]
import numpy as np

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.optimizer import ModelEMA

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=2))
model.initialize(seed=0)
ema = ModelEMA(model)
average = nn.state_arrays(model)
for update in (1, 2, 3):
    model.initialize(seed=update)  # in place of an optimizer step
    ema.update(model)
    decay = 0.9999 * (1 - np.exp(-update / 2000))
    for name, weights in nn.state_arrays(model).items():
        if weights.dtype == np.float32:
            average[name] = decay * average[name] + (1 - decay) * weights
ours = nn.state_arrays(ema.model)
same = [np.allclose(average[name], ours[name], atol=1e-6) for name in ours]
print(f"{sum(same)} of {len(same)} arrays as Duet's")
# --8<-- [end:page]

values = {
    "late": f"{decay_after(100000):.4f}",
    "halfway_10000": updates_until_halfway(10000),
}
