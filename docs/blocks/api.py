# Runs on torch and oneflow.
# Needs best.safetensors, best-seg.safetensors, best-cls.safetensors, bus.jpg, images.
# Numbers agree to 1e-3.
# --8<-- [start:load]
from duet import load

detector = load("best.safetensors")
(result,) = detector("bus.jpg", size=640, max_det=3)  # the three best
for found in result:
    print(found.name, round(found.score, 2), found.box_xyxy)
# --8<-- [end:load]

# --8<-- [start:images]
import numpy as np
from PIL import Image

noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
with open("bus.jpg", "rb") as file:
    images = ["bus.jpg", file.read(), noise, Image.open("bus.jpg")]
results = detector(images, size=320, conf=0.4)
assert len(results) == 4
# --8<-- [end:images]

# --8<-- [start:result]
drawn = result.plot()  # (H, W, 3) uint8 RGB with boxes and labels
parts = result.crop()  # what each box shows
table = result.to_pandas()  # xmin ymin xmax ymax confidence class name
record = result.to_dict()  # plain numbers and texts
text = result.to_json()
print(result, len(result))

import supervision  # its zones, lines and annotators take this

boxes = supervision.Detections(
    xyxy=result.boxes_xyxy,
    confidence=result.scores,
    class_id=result.class_index,
)
# --8<-- [end:result]
assert len(boxes) == 3
assert record["height"] == 60
assert (
    drawn.shape == result.image.shape
    and len(parts) == len(table) == 3
    and text
)

# --8<-- [start:masks]
segmenter = load("best-seg.safetensors")
(result,) = segmenter("bus.jpg", size=320, max_det=2)
for found, mask in zip(
    result, result.masks, strict=True
):  # (H, W) bool, unpacked one by one
    print(found.name, mask.sum())
masks = np.asarray(
    result.masks
)  # (K, H, W); an error where memory cannot hold them
outlines = (
    result.outlines
)  # of each (N, 2), pixels, as --save-txt writes them
# --8<-- [end:masks]
assert masks.shape == (2, 60, 90) and len(outlines) == 2

# --8<-- [start:classes]
classifier = load("best-cls.safetensors")
(result,) = classifier("bus.jpg")
print(
    result.names, result.scores
)  # of the five classes, the most probable first
print(
    result.probabilities[result.top5[0]]
)  # (C,), of every class by its number
# --8<-- [end:classes]

# --8<-- [start:stream]
for result in detector.stream("images/*.jpg", size=320):
    print(result.frame.source, len(result))
# --8<-- [end:stream]

# --8<-- [start:threads]
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(4) as pool:
    results = list(
        pool.map(lambda name: detector(name, size=320)[0], ["bus.jpg"] * 8)
    )
assert all(
    np.array_equal(result.scores, results[0].scores) for result in results
)
# --8<-- [end:threads]

# --8<-- [start:errors]
try:
    detector("bus.jpg", size=100)
except ValueError as error:
    print(error)
# --8<-- [end:errors]
