# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.graph import plan_layers, read_model_yaml
from duet.utils.model_yamls import scale_depth, scale_width

print(
    "model    depth  width  repeats in layer 6  channels of layer 9  weights"
)
for name in "nsmlx":
    spec = read_model_yaml(f"models/yolov5{name}.yaml")
    depth, width = spec.depth_multiple, spec.width_multiple
    numbers = sum(plan.numbers for plan in plan_layers(spec))
    print(
        f"yolov5{name}{depth:7}{width:7}{scale_depth(9, depth):20}"
        f"{scale_width(1024, width):21}{numbers / 1e6:7.1f} M"
    )
