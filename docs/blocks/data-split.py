# Runs without a framework.
from pathlib import Path

from PIL import Image

from duet.utils.data.shapes.dataset import ShapesConfig, draw_file
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import images_of

SMALL = ShapesConfig(image_side=96)


def add(numbers):
    """Save images, and copies of half the size in another format."""
    for number in numbers:
        image = Image.fromarray(draw_file(SMALL, number).image)
        image.save(f"photos/{number}.jpg")
        image.reduce(2).save(f"photos/{number}-small.png")


def split():
    dataset = load_dataset("photos", train_part=0.8)
    return [
        {path.stem for path in images_of(dataset, name)}
        for name in ("train", "val")
    ]


Path("photos").mkdir()
Path("photos/classes.txt").write_text("thing")
add(range(30))
train, val = split()
print(f"{len(train)} images for training, {len(val)} for validation")
both = {str(n) for n in range(30)} & {
    name.removesuffix("-small") for name in train
}
apart = [n for n in both if (n in train) != (f"{n}-small" in train)]
print(f"{len(apart)} are apart from their copy")

add(range(30, 45))
train_later, val_later = split()
moved = train - train_later | val - val_later
print(f"after adding 30: {len(train_later)} and {len(val_later)}")
print(f"{len(moved)} have moved")
