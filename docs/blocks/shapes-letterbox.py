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

height, width = placed.resized_size
empty = 1 - height * width / (320 * 320)
values = {"top": placed.padding[0], "padding": f"{empty:.0%}"}
