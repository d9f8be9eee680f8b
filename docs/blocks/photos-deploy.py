# Runs on torch and oneflow.
# Numbers differ from run to run.
# Shows lines with file takes, of one image, same boxes.
# --8<-- [start:export]
import duet

WEIGHTS = "runs/train/exp/weights/best.safetensors"
(path,) = duet.export(WEIGHTS, nms=True, conf=0.001).files
# --8<-- [end:export]
# --8<-- [start:program]
import json

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(path)
(entry,) = session.get_inputs()
side = entry.shape[2]
meta = session.get_modelmeta().custom_metadata_map
names = json.loads(meta["class_names"])
print("the file finds", *names)


def detect(image, grey=114):
    """Rows of x1, y1, x2, y2, score, class, in pixels of the image."""
    scale = side / max(image.size)
    size = [round(length * scale) for length in image.size]
    canvas = Image.new("RGB", (side, side), (grey, grey, grey))
    left, top = ((side - length) // 2 for length in size)
    canvas.paste(image.resize(size, Image.Resampling.BILINEAR), (left, top))
    pixels = np.asarray(canvas, np.float32).transpose(2, 0, 1)[None] / 255
    (rows,) = session.run(None, {entry.name: pixels})
    rows = rows[0][rows[0][:, 4] > 0]  # unused rows are zero
    boxes = (rows[:, :4] - [left, top, left, top]) / scale
    rows[:, :4] = boxes.clip(0, [*image.size, *image.size])
    return rows


image = Image.open("new/00200.jpg").convert("RGB")
image.thumbnail((side, side))
rows = detect(image)
print("of one image:", rows.shape[1], "numbers per detection")
# --8<-- [end:program]
# --8<-- [start:compare]
(result,) = duet.load(path)(image, conf=0.001, max_det=100)
same = np.allclose(rows[:, :4], result.boxes_xyxy, atol=0.1)
print("Duet finds the same boxes in it:", same)
# --8<-- [end:compare]
