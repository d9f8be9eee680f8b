# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()

import numpy as np

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_state
from duet.models.training.step import train_step
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.batch import Batch, Targets

noise = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 64), np.uint8)
targets = Targets(
    np.arange(2), np.array([0, 1]), np.full((2, 4), 0.5, np.float32)
)
batch = Batch(noise, targets, np.arange(2), (), np.arange(2))

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=2))
model.initialize(seed=0)
config = TrainConfig(
    image_size=64, batch_size=2, epochs=1, device="cpu", freeze=("10",)
)
hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
state = build_state(config, hyp, model, batches=100, device="cpu")

before = nn.state_arrays(model)
for _ in range(2):  # the first one has a learning rate of 0
    train_step(state, batch, state.timer)
after = nn.state_arrays(model)

parameters = {name for name, _ in nn.named_parameters(model)}
statistics = {name for name in after if "running" in name}
for layers in (range(10), range(10, 25)):
    inside = {name for name in after if int(name.split(".")[1]) in layers}
    changed = {
        name
        for name in inside
        if not np.array_equal(before[name], after[name])
    }
    print(f"layers {layers[0]} to {layers[-1]}, changed:", end=" ")
    for name, kind in (
        ("parameters", parameters),
        ("statistics", statistics),
    ):
        print(
            f"{len(changed & kind)} of {len(inside & kind)} {name}", end="  "
        )
    print()
# --8<-- [end:page]

sizes = {
    name: array.size for name, array in after.items() if name in parameters
}
frozen = sum(
    size for name, size in sizes.items() if int(name.split(".")[1]) < 10
)
values = {"part": f"{100 * frozen / sum(sizes.values()):.0f} %"}
