# Runs on torch and oneflow.
# Needs best.safetensors, bus.jpg.
# Numbers agree to 1e-3.
import hubconf

model = hubconf.custom("best.safetensors", device="cpu")
model.conf = 0.99  # as in programs that were written for YOLOv5
results = model("bus.jpg", size=64)
for *box_xyxy, confidence, number in results.xyxy[0].tolist()[:3]:
    print(f"{model.names[int(number)]} {confidence:.4f}", *(f"{side:.3f}" for side in box_xyxy))
