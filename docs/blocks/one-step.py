# Runs on torch and oneflow.
# Numbers agree to 1e-3.
from duet import backend

backend.use()

import numpy as np

from duet.backend import ops
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

# One batch to learn by heart: four images of noise, each with a grey square.
images = np.random.default_rng(0).integers(0, 64, (4, 3, 128, 128), np.uint8)
images[:, :, 32:96, 32:96] += 128
square = np.full(
    (4, 4), 0.5, np.float32
)  # centre and size, as parts of the image's sides
targets = Targets(np.arange(4), np.array([0, 1, 0, 1]), square)
batch = Batch(images, targets, np.arange(4), (), np.arange(4))

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=2))
model.initialize(seed=0)
config = TrainConfig(image_size=128, batch_size=4, epochs=1, device="cpu")
hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
state = build_state(config, hyp, model, batches=100, device="cpu")

print("batch     box  objectness  classification  updates")
for number in range(8):
    terms = train_step(state, batch, state.timer)
    box, objectness, classification = (
        float(ops.to_numpy(x)) for x in terms.by_name.values()
    )
    losses = f"{box:8.4f}{objectness:12.4f}{classification:16.4f}"
    print(f"{number:5}{losses}{state.ema.updates:9}")
