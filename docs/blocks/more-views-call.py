# Runs on torch and oneflow.
# Needs best.safetensors, bus.jpg.
from duet import load

detector = load("best.safetensors")
pair = load(["best.safetensors", "best.safetensors"])
for name, results in (
    ("once", detector("bus.jpg", size=64)),
    ("augmented", detector("bus.jpg", size=64, augment=True)),
    ("tiles", detector("bus.jpg", size=64, tile=64)),
    ("the same model twice", pair("bus.jpg", size=64)),
):
    print(f"{name}: {len(results[0])} boxes")
