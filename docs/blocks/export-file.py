# Runs on torch and oneflow.
# Needs best.safetensors, bus.jpg.
# Numbers agree to 1e-3.
# --8<-- [start:write]
from duet import backend

backend.use()

from duet.models.export.job import run_export
from duet.utils.export.config import ExportConfig
from duet.utils.weights.load import load_weights

# What `python export.py --weights best.safetensors --imgsz 64` does.
config = ExportConfig(weights="best.safetensors", sizes=(64,))
run_export(config, load_weights(config.weights), None)
# --8<-- [end:write]
# --8<-- [start:look]
from collections import Counter

import onnx

graph = onnx.load("best.onnx").graph
for value in (*graph.input, *graph.output):
    print(value.name, [side.dim_value for side in value.type.tensor_type.shape.dim])
print("nodes:", dict(Counter(node.op_type for node in graph.node).most_common(4)))
print("one of them:", graph.node[0].name, "with", graph.node[0].input[1])
# --8<-- [end:look]
# --8<-- [start:damage]
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from duet.models.export.verify import chosen_images, make_trials, verify
from duet.models.stored import load_detector
from duet.utils.export.opening import open_runtime

damaged = onnx.load("best.onnx")
for constant in damaged.graph.initializer:
    if constant.name == "model.2.cv3.conv.weight":
        weights = numpy_helper.to_array(constant) * np.float32(1.01)
        constant.CopyFrom(numpy_helper.from_array(weights, constant.name))
onnx.save(damaged, "damaged.onnx")

model = load_detector(load_weights("best.safetensors"), "cpu")
for name in ("best.onnx", "damaged.onnx"):
    file = open_runtime(name)
    trials = make_trials(model, chosen_images(None), file.metadata)
    result = verify(file, file.metadata, trials, config)
    print(f"{name}: {result.fault or result.differences}")
# --8<-- [end:damage]
# --8<-- [start:nms]
import dataclasses

import onnxruntime
from PIL import Image

from duet.models.export.graph_process import write_graph
from duet.utils.evaluation.nms import SuppressionSettings, non_max_suppression

path = Path("best.safetensors").resolve()
with_nms = dataclasses.replace(config, weights=str(path), nms=True, top_all=20)
write_graph(with_nms, path.with_name("nms.onnx"))

image = np.asarray(Image.open("bus.jpg").resize((64, 64)), np.float32).transpose(2, 0, 1) / 255
sessions = [onnxruntime.InferenceSession(name) for name in ("best.onnx", "nms.onnx")]
rows, table = (session.run(None, {"images": image[None]})[0] for session in sessions)
print("rows", rows.shape, "-> detections", table.shape)

# The same by hand: NMS in NumPy, on the rows.
settings = SuppressionSettings(0.25, 0.45, max_detections=20, multi_label=False)
found = non_max_suppression(rows[0], settings)
print("in the graph:", table[0, 0, :4].round(2), "class", int(table[0, 0, 5]))
print("in NumPy:    ", found.boxes_xyxy[0].round(2), "class", found.class_index[0])
print("scores are the same:", np.allclose(table[0, :, 4], found.scores, atol=1e-5))
# --8<-- [end:nms]
# --8<-- [start:serve]
import json
import subprocess
import sys
import urllib.request

from duet.utils.project import PROJECT

# What `python -m duet serve --weights best.onnx` does, at a free port.
command = [sys.executable, "-m", "duet.utils.serve", "--port", "0", "--weights"]
server = subprocess.Popen(
    [*command, Path("best.onnx").resolve()], cwd=PROJECT, stdout=subprocess.PIPE, text=True
)
try:
    url = next(line.split()[-1] for line in server.stdout if line.startswith("ready:"))
    body = Path("bus.jpg").read_bytes()
    with urllib.request.urlopen(f"{url}?conf=0.5&max_det=1&classes=1", data=body) as answer:
        first = json.load(answer)["detections"][0]
finally:
    server.terminate()
    server.communicate()  # reads the log to its end

print(first["name"], round(first["score"], 3), [round(side, 2) for side in first["box_xyxy"]])
# --8<-- [end:serve]
