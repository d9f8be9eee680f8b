# Runs on torch and oneflow.
# Needs best.safetensors, bus.jpg.
# Numbers agree to 1e-3.
from duet import load

detector = load("best.safetensors")
(result,) = detector("bus.jpg", size=64, conf=0.99)
for found in list(result)[:3]:
    print(f"{found.name} {found.score:.4f}", *(f"{side:.3f}" for side in found.box_xyxy))
