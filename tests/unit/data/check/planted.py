"""A small dataset with one error of each kind, and the list of them."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIZE_WH = 96, 64
GOOD = "0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.25\n"
YAML = """path: .
train: [train.txt]
val: images/val
names: [Cat, dog, "cat ", only train, only val, never]
"""
LABELS = {  # by image
    "train/good": GOOD + "2 0.5 0.5 0.5 0.5\n3 0.75 0.75 0.25 0.25\n",
    "train/polygon": "0 0.1 0.1 0.5 0.1 0.3 0.9\n",
    "train/rounded": "0 0.5 0.5 1.00001 1.00001\n",  # within the rounding of decimals
    "train/background": "",
    "train/words": f"{GOOD}cat 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1\n\n0 0.1 0.2 0.3 0.4 0.5\n",
    "train/bytes": b"\xff\xfe0",
    "train/class": f"{GOOD}6 0.5 0.5 0.1 0.1\n-1 0.5 0.5 0.1 0.1\n0.5 0.5 0.5 0.1 0.1\n",
    "train/pixels": f"{GOOD}0 48 32 24 16\n1 nan 0.5 0.1 0.1\n",
    "train/far": "0 0.9 0.5 0.4 0.2\n",  # training clips it
    "train/negative": "0 0.5 0.5 -0.2 0.2\n",
    "train/flat": f"{GOOD}0 0.5 0.5 0 0.25\n0 0.2 0.2 0.4 0.2 0.6 0.2\n",
    "train/unlisted": "this is not looked at, nor lost\n",
    "train/twice": f"{GOOD}{GOOD}",
    "train/over": f"{GOOD}0 0.9 0.5 0.21 0.25\n",
    "train/over_point": "0 1.005 0.5 0.9 0.1 0.9 0.9\n",
    "train/turned": GOOD,
    "train/short": GOOD,
    "train/behind_header": GOOD,
    "train/text": GOOD,
    "train/tiny": GOOD,
    "train/gone": GOOD,
    "train/lost": GOOD,
    "train/first": GOOD,
    "train/second": GOOD,
    "train/scene": GOOD,
    "train/scene2": GOOD,
    "val/good": "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n2 0.5 0.5 0.25 0.5\n4 0.5 0.5 0.5 0.25\n",
    "val/of_train": GOOD,
    "val/like_train": GOOD,
}
NOT_LISTED = ("lost", "unlisted")
EXPECTED = {  # kind, file, place
    ("no_outline", "planted", ""),
    ("unusable_image", "images/train/gone.jpg", ""),
    ("unusable_image", "images/train/text.jpg", ""),
    ("unusable_image", "images/train/short.jpg", ""),
    ("unusable_image", "images/train/behind_header.png", ""),
    ("unusable_image", "images/train/tiny.png", ""),
    ("broken_label", "labels/train/words.txt", "line 3"),
    ("broken_label", "labels/train/words.txt", "line 4"),
    ("broken_label", "labels/train/words.txt", "line 6"),
    ("broken_label", "labels/train/bytes.txt", ""),
    ("unknown_class", "labels/train/class.txt", "line 3"),
    ("unknown_class", "labels/train/class.txt", "line 4"),
    ("unknown_class", "labels/train/class.txt", "line 5"),
    ("out_of_range", "labels/train/pixels.txt", "line 3"),
    ("out_of_range", "labels/train/pixels.txt", "line 4"),
    ("out_of_range", "labels/train/far.txt", "line 1"),
    ("out_of_range", "labels/train/negative.txt", "line 1"),
    ("zero_area", "labels/train/flat.txt", "line 3"),
    ("zero_area", "labels/train/flat.txt", "line 4"),
    ("repeated_object", "labels/train/twice.txt", "line 3"),
    ("repeated_object", "labels/train/twice.txt", "line 4"),
    ("overshoot", "labels/train/over.txt", "line 3"),
    ("overshoot", "labels/train/over_point.txt", "line 1"),
    ("turned", "images/train/turned.jpg", ""),
    ("no_label_file", "images/train/unlabelled.jpg", ""),
    ("unused_image", "images/train/unlisted.jpg", ""),
    ("lost_labels", "labels/train/lost.txt", ""),
    ("repeated_image", "images/train/second.jpg", ""),
    ("alike", "images/train/scene2.jpg", ""),
    ("leak", "images/val/of_train.jpg", ""),
    ("near_leak", "images/val/like_train.jpg", ""),
    ("similar_names", "'Cat', 'cat '", ""),
    ("not_in_train", "class 4, 'only val'", ""),
}
# Left out by a training: the images that it cannot read, and those with a line that it refuses.
LEFT_OUT = {
    "gone.jpg", "text.jpg", "short.jpg", "behind_header.png", "tiny.png", "words.jpg", "bytes.jpg",
    "class.jpg", "pixels.jpg", "negative.jpg", "over_point.jpg",
}  # fmt: skip


def pattern(seed: int, size_wh: tuple[int, int] = SIZE_WH) -> Image.Image:
    """An image that looks like none of another seed."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize(size_wh, Image.Resampling.BICUBIC)


def write_planted(folder: Path) -> Path:
    """Write the dataset; return its YAML."""
    for kind in ("images", "labels"):
        for split in ("train", "val"):
            (folder / kind / split).mkdir(parents=True)
    for seed, (name, labels) in enumerate(LABELS.items()):
        if name not in ("train/gone", "train/lost"):
            pattern(seed).save(folder / "images" / f"{name}.jpg", quality=95)
        content = labels if isinstance(labels, bytes) else labels.encode()
        (folder / "labels" / f"{name}.txt").write_bytes(content)
    _damage(folder / "images")
    (folder / "labels/train/classes.txt").write_text("Cat\ndog\n", encoding="utf-8")
    stems = [name.removeprefix("train/") for name in LABELS if name.startswith("train/")]
    names = [f"{stem}.jpg" for stem in [*stems, "unlabelled"] if stem not in NOT_LISTED]
    present = os.listdir(folder / "images/train")
    listed = [name for name in names if name in present or name == "gone.jpg"]
    listed += [name for name in present if name.endswith(".png")]
    lines = "".join(f"./images/train/{name}\n" for name in listed)
    (folder / "train.txt").write_text(lines, encoding="utf-8")
    path = folder / "planted.yaml"
    path.write_text(YAML, encoding="utf-8")
    return path


def _damage(images: Path) -> None:
    """Turn good images into those with the errors that their names tell."""
    train, val = images / "train", images / "val"
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    pattern(100).save(train / "turned.jpg", exif=upside_down)
    pattern(101).save(train / "unlabelled.jpg")
    whole = (train / "short.jpg").read_bytes()
    (train / "short.jpg").write_bytes(whole[: len(whole) // 2])
    (train / "text.jpg").write_text("<html>not found</html>", encoding="utf-8")
    for stem in ("behind_header", "tiny"):
        (train / f"{stem}.jpg").unlink()
    pattern(102).save(train / "behind_header.png")
    content = bytearray((train / "behind_header.png").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (train / "behind_header.png").write_bytes(content)
    pattern(103, (8, 40)).save(train / "tiny.png")
    pattern(106).save(train / "unlisted.jpg")
    pattern(104).save(train / "first.jpg")
    pattern(104).save(train / "second.jpg")
    pattern(105).save(train / "scene.jpg", quality=95)
    pattern(105).save(train / "scene2.jpg", quality=80)
    (val / "of_train.jpg").write_bytes((train / "good.jpg").read_bytes())
    Image.open(train / "polygon.jpg").save(val / "like_train.jpg", quality=70)


def write_dataset(folder: Path, labels: Mapping[str, str], yaml: str) -> Path:
    """Write a dataset with these label files, by the image's path below images/; return its YAML.

    A name without a suffix gets .png.
    """
    for number, (name, text) in enumerate(labels.items()):
        image = folder / "images" / name
        image = image if image.suffix else image.with_suffix(".png")
        before, _, after = f"images/{name}".rpartition("images/")
        label = (folder / f"{before}labels/{after}").with_suffix(".txt")
        for path in (image, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        pattern(number).save(image)
        label.write_text(text, encoding="utf-8")
    (folder / "data.yaml").write_text(yaml)
    return folder / "data.yaml"
