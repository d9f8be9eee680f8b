"""Detect with an ONNX file of `export.py --nms --letterbox`: a picture goes in, boxes come out.

python onnx_detect_nms.py best.onnx picture.jpg
Prints a line a box, the best first: label score x1 y1 x2 y2, in pixels of the picture.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

try:
    session = onnxruntime.InferenceSession(sys.argv[1])
    texts = session.get_modelmeta().custom_metadata_map
    needed = {"image", "output", "class_names"} & texts.keys()
    about = {name: json.loads(texts[name]) for name in needed}
    image = np.asarray(ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB"))
except Exception as error:
    sys.exit(f"usage: {sys.argv[0]} FILE PICTURE; no file of export.py, or no picture: {error}")
if (about.get("image"), about.get("output")) != ("pixels", "detections"):
    sys.exit("no file of export.py --nms --letterbox; for one without both see onnx_detect.py")
found = session.run(None, {session.get_inputs()[0].name: image})[0][0]
for x1, y1, x2, y2, score, number in found[found[:, 4] > 0]:
    label = about["class_names"][int(number)]
    print(f"{label} {score:.4f} {x1:.2f} {y1:.2f} {x2:.2f} {y2:.2f}")
