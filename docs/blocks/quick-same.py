# Runs on torch and oneflow.
from zlib import crc32

from duet import backend

backend.use()

from duet.backend import ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=5))
model.initialize(seed=0)
arrays = [ops.to_numpy(parameter) for parameter in model.parameters()]
weights = b"".join(array.tobytes() for array in arrays)
print(f"initial weights {crc32(weights):08x}")

samples = load_split(load_dataset("shapes"), "train")
augment = TrainConfig().augmentation(
    read_hyperparameters(DEFAULT_HYPERPARAMETERS)
)
with TrainLoader(samples, TrainRecipe(64, 16, augment, seed=0)) as loader:
    for number in range(3):
        batch = loader.batch(epoch=0, batch_index=number)
        print(f"batch {number}         {crc32(batch.images.tobytes()):08x}")
