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

# --8<-- [start:field]


def windows(layer):
    """(kernel, stride) of what a layer of the backbone does one by one."""
    if layer.block == "Conv":
        return [(layer.args[1], layer.args[2])]
    if layer.block == "C3":  # each bottleneck has one 3 x 3 convolution
        return [(3, 1)] * scale_depth(layer.number, spec.depth_multiple)
    return [(5, 1)] * 3  # SPPF


field, stride = 1, 1
for index, layer in enumerate(spec.layers[:10]):
    for kernel, step in windows(layer):
        field += (kernel - 1) * stride
        stride *= step
    print(f"after layer {index}: stride {stride:2}, sees {field:3} px")
# --8<-- [end:field]

values = {"layers": len(plans), "stride": stride, "field": field}
