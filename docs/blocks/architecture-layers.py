# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.graph import plan_layers, read_model_yaml
from duet.utils.files.model_yamls import scale_depth

spec = read_model_yaml("models/yolov5n.yaml")
plans = plan_layers(spec)

print("layer  from        module       times  channels  stride  weights")
for index, (layer, plan) in enumerate(zip(spec.layers, plans, strict=True)):
    sources = ", ".join(
        "image" if source < 0 else str(source) for source in layer.sources
    )
    times = scale_depth(layer.number, spec.depth_multiple)
    print(
        f"{index:5}  {sources:12}{layer.block:12}{times:6}"
        f"{plan.out_channels:10}{plan.stride:8}{plan.numbers:9}"
    )
# --8<-- [end:page]

values = {"layers": len(plans), "stride": max(plan.stride for plan in plans)}
