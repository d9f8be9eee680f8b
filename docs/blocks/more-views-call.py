# Runs on torch and oneflow.
# Numbers differ from run to run.
from duet import load

WEIGHTS = "runs/train/exp/weights/best.safetensors"
IMAGE = "datasets/shapes/images/val/00400.jpg"
detector, pair = load(WEIGHTS), load([WEIGHTS, WEIGHTS])
for name, results in (
    ("once", detector(IMAGE, size=64, conf=0.001)),
    ("augmented", detector(IMAGE, size=64, conf=0.001, augment=True)),
    ("tiles", detector(IMAGE, size=64, conf=0.001, tile=160)),
    ("the same model twice", pair(IMAGE, size=64, conf=0.001)),
):
    print(f"{name}: {len(results[0])} boxes")
