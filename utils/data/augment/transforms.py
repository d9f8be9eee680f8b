"""Transforms of the package Albumentations as a part of the augmentation; it is optional.

They are kept as one text, JSON: a run goes on with the transforms with which it began.
"""

from __future__ import annotations

import difflib
import json
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import cv2
import numpy as np

from utils.data.augment.geometry import (
    MIN_AREA_RATIO,
    MIN_SIDE,
    OUTLINE_MARGIN,
    boxes_within,
    warp_polygons,
    worth_keeping,
)
from utils.data.image.labelled import LabelledImage, Objects
from utils.errors import UserError, brief
from utils.json_files import parse_json
from utils.optional import import_optional
from utils.polygons import Polygons, starts_of, without_outlines
from utils.project import PROJECT
from utils.yaml_files import find_yaml, read_yaml

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
TRIALS = 4  # seeds, before training
_FLAG = "--albumentations"


def read_transforms(path: str) -> str:
    """Return the transforms of a YAML file as one text; "" for no file.

    The file maps names to arguments, in the order in which they are applied: `Blur: {p: 0.01}`.

    Args:
        path: or the text itself, as a command has it that starts another one with its settings.

    Raises:
        UserError: it cannot be read, or names what is no known transform.
    """
    if not path:
        return ""
    if path.startswith("{"):
        return json.dumps(_parse(path))
    found = find_yaml(path, FOLDER)
    document = read_yaml(_FLAG, found, f"{PUBLIC_TRANSFORMS} is an example")
    require_known(f"{_FLAG} {found}", document)
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


def require_transforms(text: str, size: tuple[int, int]) -> None:
    """Try all transforms a few times on an image of (height, width).

    Raises:
        UserError: the package is absent or does not take the arguments; the result has another
            size or type, or is another one for the same seed.
    """
    if not text:
        return
    _build(text)
    surely = {name: {**given, "p": 1.0} for name, given in _parse(text).items()}
    height, width = size
    shades = np.arange(height * width * 3, dtype=np.uint32) % 251
    box = np.array([[0.25, 0.25, 0.75, 0.75]]) * [width, height, width, height]
    item = LabelledImage(shades.astype(np.uint8).reshape(height, width, 3), np.zeros(1, int), box)
    for seed in range(TRIALS):
        first, second = (transform(item, json.dumps(surely), seed) for _ in range(2))
        if not all(map(np.array_equal, first[:3], second[:3])):
            raise UserError(
                f"{_FLAG}: these transforms do not follow their seed, so that no run could be "
                f"repeated: {', '.join(surely)}; leave out the newest of them"
            )


def transform(
    item: LabelledImage, text: str, seed: int, fits_outlines: bool = False
) -> LabelledImage:
    """Apply transforms, all of whose draws are a function of the seed.

    Boxes of spatial ones are clipped, and dropped like `worth_keeping` drops them. The corners
    of polygons move with them.

    Args:
        item: BGR; the transforms see RGB, as the package asks for.
        text: from `read_transforms`.
        seed: from 0 to below 2**32.
        fits_outlines: the box of a moved polygon becomes the one around what is seen of it; the
            package moves corners of boxes, which is looser.

    Raises:
        UserError: the result has another size or type.
    """
    pipeline = _build(text)
    # One state for all: with `set_random_seed` each would begin with the same draw.
    pipeline.compose.set_random_state(np.random.default_rng(seed), random.Random(seed))
    given = {"image": cv2.cvtColor(item.image, cv2.COLOR_BGR2RGB)}
    if pipeline.is_spatial:
        given |= {"bboxes": item.boxes_xyxy, "row": np.arange(len(item.boxes_xyxy))}
        outlines = item.polygons or without_outlines(len(item.class_index))
        owner = np.repeat(np.arange(len(outlines)), outlines.num_points)
        given |= {"keypoints": outlines.points_xy, "owner": owner}
    try:
        found = pipeline.compose(**given)
    except (TypeError, ValueError, cv2.error) as error:
        height, width = item.size
        raise UserError(
            f"{_FLAG}: {text} fails on an image of {width}x{height}: {_reason(error)}"
        ) from error
    image = found["image"]
    if image.shape != item.image.shape or image.dtype != np.uint8:
        raise UserError(
            f"{_FLAG}: {text} makes {image.shape[1]}x{image.shape[0]} {image.dtype} of a training "
            f"image of {item.size[1]}x{item.size[0]} uint8; add Resize, or leave out what "
            "changes the size"
        )
    image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    if not pipeline.is_spatial:
        return item._replace(image=image)
    boxes: np.ndarray = np.asarray(found["bboxes"], np.float64).reshape(-1, 4)
    rows = np.asarray(found["row"], np.int64)
    class_index, polygons = item.class_index[rows], item.polygons
    if polygons is None:
        return LabelledImage(image, class_index, boxes)
    had_points = polygons.num_points[rows] > 0
    polygons = _moved(found, len(polygons), item.size).select(rows)
    keep = np.ones(len(rows), bool)
    if fits_outlines:
        boxes = np.where(had_points[:, None], boxes_within(polygons, item.size), boxes)
        keep = ~had_points | worth_keeping(boxes, boxes)  # else nothing of it is seen
    return LabelledImage(image, *Objects(class_index, boxes, polygons).select(keep))


def _moved(found: Mapping[str, Any], num_objects: int, size: tuple[int, int]) -> Polygons:
    """Return the polygons of moved points, cut where those of any other augmentation are."""
    points = np.asarray(found["keypoints"], np.float64).reshape(-1, 2)
    owner = np.asarray(found["owner"], np.int64)
    is_number = np.isfinite(points).all(axis=1)
    num_points = np.bincount(owner[is_number], minlength=num_objects)
    moved = Polygons(points[is_number], starts_of(num_points))
    return warp_polygons(moved, np.eye(3), size, OUTLINE_MARGIN)


class _Pipeline(NamedTuple):
    compose: Any  # albumentations.Compose
    is_spatial: bool  # boxes and outlines move, too


@lru_cache(maxsize=2)
def _build(text: str) -> _Pipeline:
    # Without torch: a loader's process would take a second and 180 MB more.
    with _hidden("torch"):
        package = import_optional("albumentations", _FLAG)
    document = _parse(text)
    parts = [_make(package, name, given) for name, given in document.items()]
    is_spatial = any(isinstance(part, package.DualTransform) for part in parts)
    boxes = package.BboxParams(
        format="pascal_voc",
        label_fields=["row"],
        min_width=MIN_SIDE,
        min_height=MIN_SIDE,
        min_visibility=MIN_AREA_RATIO,
        clip=True,
    )
    points = package.KeypointParams(format="xy", label_fields=["owner"], remove_invisible=False)
    compose = package.Compose(
        parts,
        bbox_params=boxes if is_spatial else None,
        keypoint_params=points if is_spatial else None,
    )
    return _Pipeline(compose, is_spatial)


def _make(package: ModuleType, name: str, given: Mapping[str, Any]) -> Any:
    """Build a transform; its complaints about arguments are warnings or errors of many lines."""
    if not hasattr(package, name):
        raise UserError(f"{_FLAG}: the installed {package.__name__} has no {name}; leave it out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return getattr(package, name)(**given)
    except (TypeError, ValueError, Warning) as error:
        raise UserError(
            f"{_FLAG}: {name}: {brief(dict(given))} is not accepted: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Return what an error says, in one line; one of pydantic has a part for each argument."""
    cause = error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return str(error)
    first = cause.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def _parse(text: str) -> dict[str, Any]:
    """Return the transforms of a text; it may be that of a state from anywhere."""
    try:
        document = parse_json(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UserError(f"{_FLAG}: {brief(text)}; names of transforms are needed")
    require_known(_FLAG, document)
    return document


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let imports find no package of this name, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as Python documents it
    try:
        yield
    finally:
        del sys.modules[package]
