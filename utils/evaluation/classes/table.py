"""Classification's figures as lines of text."""

from __future__ import annotations

from utils.evaluation.classes.metric import ClassificationResult
from utils.screen.text import printable


def accuracy_table(result: ClassificationResult) -> str:
    """Return top-1 and top-5 accuracy over all images, and of each class that has any."""
    lines = [f"{'class':>20}{'images':>8}{'top1':>9}{'top5':>9}"]
    rows = [("all", int(result.num_images.sum()), result.top1, result.top5)]
    for index, name in enumerate(result.class_names):
        images = int(result.num_images[index])
        if images:
            rows.append((name, images, result.class_top1[index], result.class_top5[index]))
    for name, images, top1, top5 in rows:
        lines.append(f"{printable(name):>20}{images:8d}{top1:9.4f}{top5:9.4f}")
    return "\n".join(lines)
