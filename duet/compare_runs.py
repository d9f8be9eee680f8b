"""Compare the results of two val.py runs on the same images: is the difference more than noise?

duet compare-runs runs/val/exp runs/val/exp2
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from duet.utils.cli.flags import new_parser
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.per_image import (
    DRAWS,
    FILE,
    PerImage,
    interval,
    mean_over_classes,
    read_per_image,
)
from duet.utils.processes.command import run_command
from duet.utils.text import count, say

MOST_IMAGES = 10  # with the largest differences
AT_50 = 0  # index of IoU 0.50


def main() -> None:
    parser = new_parser("duet compare-runs", "Compare two runs of val.py by a paired bootstrap.")
    parser.add_argument("runs", type=Path, nargs=2, metavar="RUN", help="folders of val.py")
    runs = parser.parse_args().runs
    (one, names, classes), (other, *labels) = (read_per_image(run / FILE) for run in runs)
    if [names, classes] != labels or not np.array_equal(one.objects, other.objects):
        raise UserError(
            f"{runs[0]} and {runs[1]} have other images, classes or objects; run val.py on both "
            "weights with the same --data, --task and --classes"
        )
    say(*table(one, other, classes), "", *differing_images(one, other, names))


def table(one: PerImage, other: PerImage, classes: Sequence[str]) -> Iterator[str]:
    """Yield a line over all classes and one per class: both values, and the difference."""
    each = np.ones(len(one.objects), np.int64)
    whole = [run.average_precision(each) for run in (one, other)]
    drawn = [run.bootstrap() for run in (one, other)]
    yield f"{'mAP50-95':>20}  first  second  difference (95 % interval)"
    means = [mean_over_classes(values) for values in whole]
    low, high = interval(np.subtract(*map(mean_over_classes, drawn[::-1])))
    yield line("all", float(means[0]), float(means[1]), low, high)
    for index, name in enumerate(classes):
        if not np.isnan(whole[0][index]):
            bounds = interval(drawn[1][:, index] - drawn[0][:, index])
            yield line(name, whole[0][index], whole[1][index], *bounds)
    result = "more than noise" if low > 0 or high < 0 else "no more than noise"
    yield f"the difference is {result}: {DRAWS:,} draws of {count(len(each), 'image')}"


def line(name: str, first: float, second: float, low: float, high: float) -> str:
    return (
        f"{name:>20}  {first:.3f}  {second:.3f}   {second - first:+.3f} ({low:+.3f} to {high:+.3f})"
    )


def differing_images(one: PerImage, other: PerImage, names: Sequence[str]) -> Iterator[str]:
    """Yield the images in which one run finds most objects that the other does not, at IoU 0.50."""
    found = [
        np.bincount(run.image[run.correct[AT_50]], minlength=len(names)) for run in (one, other)
    ]
    more = found[1] - found[0]
    if not more.any():
        yield "both runs find equally many objects in each image, at IoU 0.50 and any score"
        return
    yield "objects found at IoU 0.50 and any score, where the runs differ most:"
    for index in np.argsort(-abs(more), kind="stable")[:MOST_IMAGES].tolist():
        if more[index]:
            objects = int(one.objects[index].sum())
            yield f"  {names[index]}: {found[0][index]} and {found[1][index]} of {objects}"


if __name__ == "__main__":
    run_command(main)
