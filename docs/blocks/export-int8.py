# Runs without a framework.
# Numbers agree to 1e-3.
# --8<-- [start:page]
import numpy as np
import onnx

from duet.utils.export.quantization import find_ranges


def rounded(x, low, high):
    """Numbers that went through 8 bits."""
    scale = (high - low) / 255
    zero = np.round(-low / scale)
    return (np.clip(np.round(x / scale) + zero, 0, 255) - zero) * scale


# A map that 64 images give, around 0, with one single number far away.
x = (
    np.random.default_rng(0)
    .normal(size=(64, 1, 1, 100, 100))
    .astype(np.float32)
)
x[0, 0, 0, 0, 0] = 100
whole = x.min(), x.max()

node = onnx.helper.make_node("Identity", ["images"], ["map"])
ends = [
    onnx.helper.make_tensor_value_info(
        name, onnx.TensorProto.FLOAT, x[0].shape
    )
    for name in ("images", "map")
]
model = onnx.helper.make_model(
    onnx.helper.make_graph([node], "one", ends[:1], ends[1:])
)
model.ir_version, model.opset_import[0].version = 8, 17
chosen = find_ranges(model, ["map"], lambda: iter(x))["map"]

print("range of the map      scale  mean error")
errors = []
for low, high in (whole, chosen):
    errors.append(np.abs(rounded(x, low, high) - x).mean())
    scale = (high - low) / 255
    print(f"{low:6.2f} to {high:6.2f} {scale:10.4f}{errors[-1]:12.4f}")

# Weights: one scale for all channels, or one for each.
weights = (
    np.random.default_rng(1).normal(size=(8, 144))
    * 2.0 ** -np.arange(8)[:, None]
)
for name, axis in (("one scale", None), ("a scale for each channel", 1)):
    scale = np.abs(weights).max(axis=axis, keepdims=True) / 127
    error = np.abs(np.round(weights / scale) * scale - weights).mean(axis=1)
    relative = error[-1] / np.abs(weights[-1]).mean()
    print(f"{name}: error of the weakest channel {relative:.2%}")
# --8<-- [end:page]

values = {"times": f"{errors[0] / errors[1]:.0f}"}
