# Runs on torch and oneflow.
# Needs best.safetensors, images.
# --8<-- [start:count]
from collections import Counter

from duet import load

detector = load("best.safetensors")
for result in detector.stream("images", size=320, max_det=20):
    print(result.frame.source, dict(sorted(Counter(result.names).items())))
# --8<-- [end:count]
assert len(result) == 20

# --8<-- [start:crop]
from pathlib import Path

from PIL import Image

folder = Path("crops")
folder.mkdir()
(result,) = detector("images/1.jpg", size=320, max_det=5)
for number, (found, part) in enumerate(
    zip(result, result.crop(), strict=True)
):
    Image.fromarray(part).save(folder / f"{found.name}-{number}.png")
# --8<-- [end:crop]
assert len(list(folder.iterdir())) == 5

# --8<-- [start:blur]
from PIL import ImageFilter

HIDDEN = {"circle", "star"}  # yours: {"face"}, or {"person"}
picture = Image.fromarray(result.image)
for found in result:
    if found.name in HIDDEN:
        box = [round(edge) for edge in found.box_xyxy]
        radius = max(box[2] - box[0], box[3] - box[1]) / 8
        part = picture.crop(box).filter(ImageFilter.GaussianBlur(radius))
        picture.paste(part, box[:2])
picture.save("hidden.png")
# --8<-- [end:blur]

# --8<-- [start:csv]
import csv

with open("found.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["image", "class", "score", "x1", "y1", "x2", "y2"])
    for result in detector.stream("images", size=320):
        for found in result:
            row = [result.frame.source, found.name, round(found.score, 3)]
            table.writerow(row + [round(edge, 1) for edge in found.box_xyxy])
# --8<-- [end:csv]
assert len(Path("found.csv").read_text().splitlines()) > 3

# --8<-- [start:zone]
import cv2
import numpy as np

ZONE = np.array([[10, 10], [80, 10], [45, 55]], np.float32)  # pixels


def inside(found):
    """Whether the middle of a box's lower edge, its feet, is in the zone."""
    left, _, right, bottom = found.box_xyxy
    feet = ((left + right) / 2, bottom)
    return cv2.pointPolygonTest(ZONE, feet, measureDist=False) >= 0


for result in detector.stream("images", size=320):
    number = sum(inside(found) for found in result)
    print(f"{result.frame.source}: {number} in the zone")
# --8<-- [end:zone]

# --8<-- [start:folders]
import json

for folder in [path for path in sorted(Path().iterdir()) if path.is_dir()]:
    if not any(folder.glob("*.jpg")):
        continue
    found = {
        str(result.frame.source): result.to_dict()
        for result in detector.stream(f"{folder}/*.jpg", size=320)
    }
    Path(f"{folder.name}.json").write_text(json.dumps(found))
    print(f"{folder}: {len(found)} images")
# --8<-- [end:folders]
