# Runs on torch and oneflow.
# Needs shapes.
# Numbers agree to 1e-3.
from duet import backend

backend.use()

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector, images_to_tensor
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossSettings
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.strengths import AugmentConfig

# 1 to 3: files become samples, samples become a batch. No framework is asked.
samples = load_split(load_dataset("shapes/shapes.yaml"), "train")
print(
    f"{len(samples)} samples, {sum(len(sample.class_index) for sample in samples)} boxes"
)
loader = TrainLoader(samples, TrainRecipe(128, 4, AugmentConfig(mosaic=1.0)))
batch = next(iter(loader.epoch(0)))
print(
    "images ",
    type(batch.images).__name__,
    batch.images.shape,
    batch.images.dtype,
)
print(
    "targets",
    type(batch.targets.image_index).__name__,
    batch.targets.boxes_cxcywh_norm.shape,
)

# 4: bytes become a tensor on the device.
images = images_to_tensor(batch.images, "cpu")
print(
    "images ",
    type(images).__name__,
    tuple(images.shape),
    ops.dtype_of(images),
)

# 5 and 6: layers, the last of which is the head.
model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=5))
model.initialize(seed=0)
raw = model(images)
for level in raw:
    print("raw map", tuple(level.shape))

# 7 and 8: targets are assigned in NumPy, the loss is made of tensors, and gradients come back.
hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
loss = model.head.make_loss(LossSettings(hyp.loss_gains(), image_size=128))
terms = loss(raw, batch.targets)
for name, value in terms.by_name.items():
    print(f"{name:14}{float(ops.to_numpy(value)):8.4f}")
weights = [x for _, x in nn.named_parameters(model)]
found = autograd.gradients(terms.total, weights)
numbers = sum(ops.to_numpy(x).size for x in found)
print(f"{len(found)} gradients of {numbers:,} numbers")
