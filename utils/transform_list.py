"""Transforms of the package Albumentations: a YAML file's, checked, as one text of JSON.

A run keeps the text: it goes on with the transforms with which it began.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.json_files import parse_json
from duet.utils.project import PROJECT
from duet.utils.yaml_files import find_yaml, read_yaml

FOLDER = "data/albumentations"
PUBLIC_TRANSFORMS = PROJECT / FOLDER / "public.yaml"
# Those that take neither files, code nor other images, and give uint8 pixels and boxes.
KNOWN = {
    "AdditiveNoise", "AdvancedBlur", "Affine", "AtLeastOneBBoxRandomCrop", "AutoContrast",
    "BBoxSafeRandomCrop", "Blur", "CLAHE", "CenterCrop", "ChannelDropout", "ChannelShuffle",
    "ChromaticAberration", "CoarseDropout", "ColorJitter", "Crop",
    "CropAndPad", "D4", "Defocus", "Downscale", "ElasticTransform", "Emboss", "Equalize",
    "Erasing", "FancyPCA", "GaussNoise", "GaussianBlur", "GlassBlur", "GridDistortion",
    "GridDropout", "GridElasticDeform", "HEStain", "HorizontalFlip", "HueSaturationValue",
    "ISONoise", "Illumination", "ImageCompression", "InvertImg", "LongestMaxSize", "MedianBlur",
    "Morphological", "MotionBlur", "MultiplicativeNoise", "NoOp", "OpticalDistortion", "Pad",
    "PadIfNeeded", "Perspective", "PixelDropout", "PlanckianJitter", "PlasmaBrightnessContrast",
    "PlasmaShadow", "Posterize", "RGBShift", "RandomBrightnessContrast", "RandomCrop",
    "RandomCropFromBorders", "RandomFog", "RandomGamma", "RandomGravel",
    "RandomRain", "RandomResizedCrop", "RandomRotate90", "RandomScale", "RandomShadow",
    "RandomSizedBBoxSafeCrop", "RandomSizedCrop", "RandomSnow", "RandomSunFlare",
    "RandomToneCurve", "Resize", "RingingOvershoot", "Rotate", "SafeRotate", "SaltAndPepper",
    "Sharpen", "ShotNoise", "SmallestMaxSize", "Solarize", "Spatter", "SquareSymmetry",
    "Superpixels", "ThinPlateSpline", "ToGray", "ToSepia", "Transpose", "UnsharpMask",
    "VerticalFlip", "XYMasking", "ZoomBlur",
}  # fmt: skip
FLAG = "--albumentations"


def read_transforms(path: str) -> str:
    """Return the transforms of a YAML file as one text; "" for no file.

    The file maps names to arguments, in the order in which they are applied: `Blur: {p: 0.01}`.

    Raises:
        UserError: it cannot be read, or names what is no known transform.
    """
    if not path:
        return ""
    found = find_yaml(path, FOLDER)
    document = read_yaml(FLAG, found, f"{PUBLIC_TRANSFORMS} is an example")
    require_known(f"{FLAG} {found}", document)
    return json.dumps({name: given or {} for name, given in document.items()})


def require_known(where: str, document: Mapping[Any, Any]) -> None:
    """Raise UserError unless a document maps names of known transforms to arguments by name."""
    if not document:
        raise UserError(f"{where}: no transform is named; write a line such as Blur: {{p: 0.01}}")
    for name, given in document.items():
        if name not in KNOWN:
            near = difflib.get_close_matches(str(name), KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(KNOWN))}"
            raise UserError(f"{where}: {brief(name)} is not an accepted transform; {hint}")
        if not (given is None or isinstance(given, dict) and all(map(_is_name, given))):
            raise UserError(
                f"{where}: {name}: {brief(given)}; its arguments by name are needed: {{p: 0.5}}"
            )


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def parse_transforms(text: str) -> dict[str, Any]:
    """Return the transforms of a text; it may be that of a state from anywhere."""
    try:
        document = parse_json(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(f"{FLAG}: {brief(text)}; names of transforms are needed")
    require_known(FLAG, document)
    return document
