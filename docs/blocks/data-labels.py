# Runs without a framework.
# --8<-- [start:page]
import numpy as np

from duet.utils.data.sources.label_file import BrokenLabelError, parse_labels
from duet.utils.geometry.boxes import cxcywh_to_xyxy

names = ["cat", "dog"]
width, height = 640, 480
content = b"""
1 0.5 0.4 0.25 0.5
0 0.1 0.8 0.3 0.8 0.3 0.95
"""
labels = parse_labels(content, len(names))
pixels = np.array([width, height, width, height])
boxes = cxcywh_to_xyxy(labels.boxes_cxcywh_norm) * pixels
for number, box in zip(labels.class_index, boxes, strict=True):
    print(names[number], np.rint(box).astype(int).tolist())

for line in (
    "2 0.5 0.4 0.25 0.5",
    "1 320 192 160 240",
    "1 0.5 0.4 0.25",
    "1 0.5 0.4 0.25 0.5 0.9",
):
    try:
        parse_labels(line.encode(), len(names))
    except BrokenLabelError as error:
        print(f"{line}\n    {error}")
# --8<-- [end:page]
# --8<-- [start:written]


def corners(line, width, height):
    """Class and corners in pixels of a line: a box or a polygon."""
    name, *rest = line.split()
    values = np.array(rest, float)
    if len(values) == 4:
        centre, size = values[:2], values[2:]
        low, high = centre - size / 2, centre + size / 2
    else:
        points = values.reshape(-1, 2)
        low, high = points.min(axis=0), points.max(axis=0)
    return int(name), np.concatenate([low, high]) * np.array(
        [width, height] * 2
    )


for line, box in zip(content.decode().split("\n")[1:], boxes, strict=False):
    number, ours = corners(line, width, height)
    assert np.allclose(ours, box)
    print(names[number], ours.round().astype(int).tolist())
# --8<-- [end:written]
