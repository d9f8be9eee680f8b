# --8<-- [start:page]
# Runs without a framework.
import numpy as np

from duet.utils.data.image.letterbox import fit_long_side

placed = fit_long_side(
    original_size=(360, 640), long_side=320, input_size=(320, 320)
)
box = np.array(
    [[100.0, 50.0, 300.0, 200.0]]
)  # left, top, right, bottom in the file
moved = placed.to_input(box)
print(f"resized {placed.resized_size}, padding (top, left) {placed.padding}")
print(f"{box[0].tolist()} -> {moved[0].tolist()}")
print(f"and back: {placed.to_original(moved)[0].tolist()}")
# --8<-- [end:page]
# --8<-- [start:written]
import cv2

from duet.utils.data.image.letterbox import letterbox


def boxed(image, side, grey=114):
    """A square with the image, its scale (vertical, horizontal), padding."""
    height, width = image.shape[:2]
    longest = max(height, width)
    size = [-(-n * side // longest) for n in (height, width)]  # rounded up
    top, left = ((side - n) // 2 for n in size)
    square = np.full((side, side, 3), grey, np.uint8)
    small = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
    square[top : top + size[0], left : left + size[1]] = small
    return square, (size[0] / height, size[1] / width), (top, left)


image = np.random.default_rng(0).integers(0, 256, (349, 640, 3), np.uint8)
square, scale, (top, left) = boxed(image, 320)
place = fit_long_side((349, 640), 320, (320, 320))
assert np.array_equal(square, letterbox(image, place))
assert (scale, (top, left)) == (place.scale, place.padding)
print(f"scales {scale[0]:.6f} and {scale[1]:.6f}, as Duet's, to the pixel")
# --8<-- [end:written]

height, width = placed.resized_size
empty = 1 - height * width / (320 * 320)
values = {"top": placed.padding[0], "padding": f"{empty:.0%}"}
