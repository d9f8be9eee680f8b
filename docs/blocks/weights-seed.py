# Runs on torch and oneflow.
from duet import backend

backend.use()
import hashlib

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml

model = Detector(read_model_yaml("models/yolov5n.yaml", num_classes=80))
model.initialize(seed=0)
arrays = nn.state_arrays(model)  # NumPy, by the names that files have

digest = hashlib.sha256()
for name in sorted(arrays):
    digest.update(arrays[name].tobytes())
print(
    f"{len(arrays)} tensors, {sum(a.size for a in arrays.values()):,} numbers"
)
print("SHA-256", digest.hexdigest()[:16])
