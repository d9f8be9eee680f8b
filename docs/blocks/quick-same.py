# Runs on torch and oneflow.
# Needs shapes.
import backend

backend.use()

from zlib import crc32

from backend import ops
from models.detector import Detector
from models.graph import read_model_yaml
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.batches import TrainRecipe
from utils.data.loading.loader import TrainLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=5))
model.initialize(seed=0)
arrays = [ops.to_numpy(parameter) for parameter in model.parameters()]
print(f"first weights  {crc32(b''.join(array.tobytes() for array in arrays)):08x}")

samples = load_split(load_dataset("shapes/shapes.yaml"), "train")
augment = TrainConfig().augmentation(read_hyperparameters(DEFAULT_HYPERPARAMETERS))
with TrainLoader(samples, TrainRecipe(64, 4, augment, seed=0)) as loader:
    for number, batch in enumerate(loader.epoch(0)):
        print(f"batch {number}        {crc32(batch.images.tobytes()):08x}")
