"""A distinct colour for every class, the same in all runs."""

from functools import lru_cache

import numpy as np

RGB = tuple[int, int, int]  # 0 to 255

# Seven colours distinguishable under common colour blindness: Okabe and Ito 2008.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
# These and 73 more, each furthest in OKLab from all before it, chosen from an sRGB grid without
# colours close to black, white or grey.
_PALETTE = bytes.fromhex(
    "0072B2 E69F00 009E73 CC79A7 56B4E9 D55E00 F0E442 9600FF 960F69 FFD2FF "
    "0000FF FF0FFF 4BFFF0 00E100 5A5A00 FF0069 7878FF 87C387 FF87FF C32DB4 "
    "962D00 5A3CB4 968700 FFA5A5 875A78 78FF87 00B400 C369F0 7887B4 C3B4FF "
    "2D5AF0 D2001E 006969 008700 FFD2A5 FF6969 FF00B4 8700A5 875AC3 C34B78 "
    "A5E1FF A5D21E 5A00F0 87693C B4E1A5 00D2D2 C38769 0096FF C300F0 9696F0 "
    "2DE187 0FA5B4 FF2D00 FF69B4 4B5A87 87B41E E196D2 783C87 4B784B 006900 "
    "4BFF00 FF7800 D2C35A 2D8796 004BC3 B44B2D F05AE1 78A578 00C378 A569A5 "
    "B4A55A 784BF0 C30078 A52D4B FFB469 7800D2 B4FF00 3C78E1 A54BF0 B46969"
)
NUM_COLOURS = len(_PALETTE) // 3

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
_LUMINANCE = np.array((0.2126, 0.7152, 0.0722))  # weights of linear sRGB


def class_colour(class_index: int) -> RGB:
    """Return the colour of a class; they repeat after 80 classes."""
    red, green, blue = _PALETTE[3 * (class_index % NUM_COLOURS) :][:3]
    return red, green, blue


def hex_colours() -> list[str]:
    """Return the colours of classes 0, 1, ... before they repeat, as "#0072b2"."""
    return [f"#{_PALETTE[at : at + 3].hex()}" for at in range(0, len(_PALETTE), 3)]


@lru_cache(maxsize=NUM_COLOURS)
def ink_on(colour: RGB) -> RGB:
    """Return black or white, whichever contrasts more with a colour (WCAG 2.1, 1.4.3).

    The contrast is at least sqrt(21) = 4.58.
    """
    value = np.array(colour) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return BLACK if (float(linear @ _LUMINANCE) + 0.05) ** 2 > 1.05 * 0.05 else WHITE
