# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import math

from duet.models.graph import plan_layers, read_model_yaml


def conv(given, channels, kernel):
    """Numbers of a convolution, and of BatchNorm's four arrays."""
    return given * channels * kernel**2 + 4 * channels


def numbers_of(kind, given, channels, times, args):
    half = channels // 2
    if kind == "Conv":
        return conv(given[0], channels, args[1])
    if kind == "C3":
        bottleneck = conv(half, half, 1) + conv(half, half, 3)
        ends = 2 * conv(given[0], half, 1) + conv(2 * half, channels, 1)
        return ends + times * bottleneck
    if kind == "SPPF":
        return conv(given[0], half, 1) + conv(4 * half, channels, 1)
    if kind == "Detect":  # 1 x 1 with a bias for each map; nine anchors
        return sum(one * channels + channels for one in given) + 9 * 2
    return 0


def read(document):
    """(channels, stride, numbers) of each layer, printed on the way."""
    depth, width = document["depth_multiple"], document["width_multiple"]
    layers = []
    lines = document["backbone"] + document["head"]
    for index, (origin, number, kind, args) in enumerate(lines):
        origins = origin if isinstance(origin, list) else [origin]
        sources = [index + one if one < 0 else one for one in origins]
        given = [3 if one < 0 else layers[one][0] for one in sources]
        stride = 1 if sources[0] < 0 else layers[sources[0]][1]
        times = max(round(number * depth), 1)
        if kind == "Concat":
            channels = sum(given)
        elif kind == "nn.Upsample":
            channels, stride = given[0], stride // args[1]
        elif kind == "Detect":
            channels = 3 * (4 + 1 + document["nc"])
        else:
            channels = math.ceil(args[0] * width / 8) * 8
            stride *= args[2] if kind == "Conv" else 1
        count = numbers_of(kind, given, channels, times, args)
        layers.append((channels, stride, count))
        came = ", ".join(str(one) for one in sources).replace("-1", "image")
        side = 640 // stride
        shape = f"{channels} x {side} x {side}"
        print(f"{index:5}  {came:12}{kind:12}{times:5}  {shape:15}{count:8}")
    return layers


spec = read_model_yaml("models/yolov5n.yaml")
print("layer  from        module      times  at 640 px       numbers")
layers = read(spec.document)
planned = [(x.out_channels, x.stride, x.numbers) for x in plan_layers(spec)]
assert layers == planned
print(f"{sum(layer[2] for layer in layers):,} numbers, as Duet plans it")
# --8<-- [end:page]

# --8<-- [start:field]


def windows(number, kind, args):
    """(kernel, stride) of what a layer of the backbone does one by one."""
    if kind == "Conv":
        return [(args[1], args[2])]
    if kind == "C3":  # each bottleneck has one 3 x 3 convolution
        times = max(round(number * spec.depth_multiple), 1)
        return [(3, 1)] * times
    return [(5, 1)] * 3  # SPPF


field, stride, fields = 1, 1, []
for index, (_, *line) in enumerate(spec.document["backbone"]):
    for kernel, step in windows(*line):
        field += (kernel - 1) * stride
        stride *= step
    fields.append(field)
    print(f"after layer {index}: stride {stride:2}, sees {field:3} px")
# --8<-- [end:field]

values = {"layers": len(layers), "stride": stride, "field": field}
