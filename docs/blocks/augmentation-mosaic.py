# Runs without a framework.
# --8<-- [start:written]
import cv2
import numpy as np


def mosaic(images, boxes, centre, side, grey=114):
    """Four images around a point of a canvas of twice the side."""
    canvas = np.full((2 * side, 2 * side, 3), grey, np.uint8)
    x, y = centre
    moved = []
    for place, (image, own) in enumerate(zip(images, boxes, strict=True)):
        longest = max(image.shape[:2])
        height, width = (-(-n * side // longest) for n in image.shape[:2])
        small = cv2.resize(
            image, (width, height), interpolation=cv2.INTER_AREA
        )
        left = x - width if place in (0, 2) else x
        top = y - height if place in (0, 1) else y
        first_row, first_column = max(top, 0), max(left, 0)
        part = small[first_row - top :, first_column - left :]
        part = part[: 2 * side - first_row, : 2 * side - first_column]
        rows = slice(first_row, first_row + part.shape[0])
        columns = slice(first_column, first_column + part.shape[1])
        canvas[rows, columns] = part
        scale = np.divide(small.shape[1::-1], image.shape[1::-1])
        moved.append(own * [*scale, *scale] + [left, top, left, top])
    return canvas, np.concatenate(moved).clip(0, 2 * side)


# --8<-- [end:written]
# --8<-- [start:agree]
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import Scene, draw_scene
from duet.utils.data.image.decoding import Objects, SourceImage
from duet.utils.data.shapes.dataset import ShapesConfig, draw_file

drawn = [draw_file(ShapesConfig(), index) for index in range(4)]
images, boxes = (
    [one.image for one in drawn],
    [one.boxes_xyxy for one in drawn],
)
canvas, plain = mosaic(images, boxes, centre=(300, 200), side=256)

sources = [
    SourceImage(
        one.image.shape[:2],
        Objects(one.class_index, one.boxes_xyxy, None),
        one.image.shape[:2],
        lambda image=one.image: image,
    )
    for one in drawn
]
scene = Scene((0, 1, 2, 3), (300 / 256, 200 / 256), Warp())
ours = draw_scene(scene, sources, 256, (512, 512))
assert np.allclose(ours.boxes_xyxy, plain, atol=1e-3)
apart = np.abs(ours.image.astype(int) - canvas).mean()
print(f"{len(plain)} boxes, {len(ours.boxes_xyxy)} left by Duet")
print(f"pixels differ by {apart:.2f} grey levels on average")
# --8<-- [end:agree]
