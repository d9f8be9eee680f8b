# Runs on torch and oneflow.
# Numbers differ from run to run.
from duet import load

detector = load("runs/train/exp/weights/best.safetensors")
image = "datasets/shapes/images/val/00400.jpg"
(result,) = detector(image, size=64, conf=0.001, max_det=3)
for found in result:
    print(
        f"score {found.score:.4f}",
        *(f"{side:.1f}" for side in found.box_xyxy),
    )
