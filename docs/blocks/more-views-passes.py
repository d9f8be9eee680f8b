# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()

import numpy as np

from duet.backend import ops
from duet.models.heads.anchor.head import AnchorHead
from duet.models.heads.found_boxes import brought_back, used_levels
from duet.models.inference.predictors import view

image = ops.tensor(np.zeros((1, 3, 320, 320), np.float32))
for one in AnchorHead.passes:
    height, width = view(image, one, stride=32).shape[2:]
    strides = [(8, 16, 32)[level] for level in used_levels(one, (8, 16, 32))]
    how = "mirrored" if one.mirrored else "as is"
    print(
        f"scale {one.scale:4}, {how}: {height} x {width}, strides {strides}"
    )

# An object in the left half, as the mirrored pass finds it: cx, cy, w, h.
mirrored = AnchorHead.passes[1]
found = np.array(
    [[(320 - 80) * 0.83, 160 * 0.83, 40 * 0.83, 60 * 0.83]], np.float32
)
print(
    "back in the image:",
    brought_back(found, mirrored, width=320)[0].round(2).tolist(),
)
# --8<-- [end:page]

values = {"work": f"{sum(one.scale**2 for one in AnchorHead.passes):.2f}"}
