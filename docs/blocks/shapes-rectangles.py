# --8<-- [start:page]
# Runs without a framework.
from duet.utils.data.image.letterbox import fit_long_side
from duet.utils.data.loading.batches import RECTANGLE_MARGIN, rectangle

# (height, width) of eight files, sorted by their ratio, in two batches.
batches = [
    [(360, 640), (360, 640), (375, 640), (400, 640)],
    [(640, 480), (640, 427), (640, 427), (640, 360)],
]
seen = square = 0
for number, sizes in enumerate(batches):
    height, width = rectangle(
        sizes, long_side=640, stride=32, margin=RECTANGLE_MARGIN
    )
    seen += len(sizes) * height * width
    square += len(sizes) * 640 * 640
    print(f"batch {number}: input {height} x {width}")
    for size in sizes:
        placed = fit_long_side(size, 640, (height, width))
        print(f"  {size} -> {placed.resized_size}, padding {placed.padding}")
print(f"{seen / square:.0%} of the pixels of squares")
# --8<-- [end:page]

values = {"part": f"{seen / square:.0%}"}
