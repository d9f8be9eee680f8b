# Runs on torch and oneflow.
# Shows lines with wrote, images [, output0, nodes, one of, accepted, refused, box_xyxy.
# Numbers differ from run to run.
# --8<-- [start:write]
import duet

WEIGHTS = "runs/train/exp/weights/best.safetensors"
(path,) = duet.export(WEIGHTS).files
print("wrote", path.name)
# --8<-- [end:write]
# --8<-- [start:look]
from collections import Counter

import onnx

graph = onnx.load(path).graph
for value in (*graph.input, *graph.output):
    print(
        value.name,
        [side.dim_value for side in value.type.tensor_type.shape.dim],
    )
nodes = Counter(node.op_type for node in graph.node)
print("nodes:", dict(nodes.most_common(4)))
print("one of them:", graph.node[0].name, "with", graph.node[0].input[1])
# --8<-- [end:look]
# --8<-- [start:damage]
import numpy as np
from onnx import numpy_helper

from duet.models.export.verify import chosen_images, make_trials, verify
from duet.models.stored import load_detector
from duet.utils.export.config import ExportConfig
from duet.utils.export.opening import open_runtime
from duet.utils.weights.load import load_weights

damaged = onnx.load(path)
for constant in damaged.graph.initializer:
    if constant.name == "model.24.m.0.weight":
        weights = numpy_helper.to_array(constant) * np.float32(1.5)
        constant.CopyFrom(numpy_helper.from_array(weights, constant.name))
onnx.save(damaged, "damaged.onnx")

config = ExportConfig(weights=WEIGHTS, sizes=(64,))
model = load_detector(load_weights(WEIGHTS), "cpu")
for name in (path, "damaged.onnx"):
    file = open_runtime(str(name))
    trials = make_trials(model, chosen_images(None), file.metadata)
    result = verify(file, file.metadata, trials, config)
    print("accepted:", result.differences) if not result.fault else print(
        "refused"
    )
# --8<-- [end:damage]
# --8<-- [start:serve]
import json
import subprocess
import sys
import urllib.request

# `duet serve --weights ...` at a free port.
command = [
    sys.executable,
    "-m",
    "duet",
    "serve",
    "--port",
    "0",
    "--weights",
    WEIGHTS,
]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    lines = (line for line in server.stdout if line.startswith("ready:"))
    url = next(lines).split()[-1]
    with open("datasets/shapes/images/val/00400.jpg", "rb") as file:
        body = file.read()
    with urllib.request.urlopen(
        f"{url}?conf=0.001&max_det=1", data=body
    ) as answer:
        first = json.load(answer)["detections"][0]
finally:
    server.terminate()
    server.communicate()  # reads the log to its end

print(sorted(first))
# --8<-- [end:serve]
