# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.graph import plan_layers, read_model_yaml

names = ("yolov5n", "yolov5nu", "yolov8n")
print("             weights  head alone  blocks")
for name in names:
    spec = read_model_yaml(f"models/{name}.yaml")
    plans = plan_layers(spec)
    total = sum(plan.numbers for plan in plans)
    blocks = {layer.block for layer in spec.layers} & {"C3", "C2f"}
    print(f"{name:10}{total:10,}{plans[-1].numbers:12,}  {blocks.pop()}")
# --8<-- [end:page]
