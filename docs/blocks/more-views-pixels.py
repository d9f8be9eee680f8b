# --8<-- [start:page]
# Runs without a framework.
from duet.utils.geometry.tiling import Tiling

width, height = 3840, 2160  # of the image
side = 24  # of an object in it

print("                    side of the object  passes  pixels in the network")
for name, part, network in (
    ("whole, --img 640", width, 640),
    ("whole, --img 1920", width, 1920),
    ("--tile 640", 640, 640),
    ("--tile 960", 960, 640),
):
    passes, pixels = 1, network * network * height / width  # the whole image
    if part < width:
        tiles = len(Tiling(part).corners((height, width)))
        passes, pixels = passes + tiles, pixels + tiles * network * network
    seen = side * network / part
    print(f"{name:20}{seen:15.0f} px{passes:8}{pixels / 1e6:15.1f} million")
# --8<-- [end:page]

values = {
    "small": side * 640 // width,
    "tiles": len(Tiling(640).corners((height, width))),
}
