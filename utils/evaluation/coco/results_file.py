"""Write detections as a COCO results file for pycocotools and COCO's server.

Format: https://cocodataset.org/#format-results, "bbox" and "segm". Numbers are written with full
precision, so that pycocotools computes the same metrics from the file as metric.py from memory.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.utils.data.masks.runs import to_text
from duet.utils.data.sources.samples import Sample
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.yaml_files import read_yaml
from duet.utils.geometry.detections import FoundObjects, GroundTruth, Segmentations
from duet.utils.project import PROJECT

COCO = PROJECT / "data" / "coco.yaml"
UNUSED_IDS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # IDs from 1 to 90 without a class

ImageId = int | str


class CocoResults:
    """Detections collected image by image and written together.

    As in the public YOLOv5, objects with masks have both COCO's "bbox" and "segmentation".
    pycocotools uses the box area of rows with a box; for its mask metrics by size, remove the key
    bbox.
    """

    def __init__(self, class_names: Sequence[str], samples: Sequence[Sample]) -> None:
        # None: no category in the annotations; such detections are left out.
        self.category_ids: Sequence[int | None] = category_ids(class_names)
        self.image_ids = image_ids([sample.image_path for sample in samples])
        self._samples = samples
        self._images: dict[int, FoundObjects] = {}

    def add(self, image_id: int, found: FoundObjects, ground_truth: GroundTruth) -> None:
        """Add the image at a sample index; boxes in pixels of the original image."""
        assert image_id not in self._images, f"image {image_id} was added before"
        self._images[image_id] = found

    def write(self, path: Path) -> None:
        """Write the images in sample order, one per line."""
        with atomic_text_file(path) as file:
            file.write("[")
            separator = "\n"
            for image_id in sorted(self._images):
                if rows := self._rows(image_id):
                    file.write(separator + json.dumps(rows)[1:-1])
                    separator = ",\n"
            file.write("\n]\n")

    def _rows(self, image_id: int) -> list[dict[str, object]]:
        found, sample = self._images[image_id], self._samples[image_id]
        has_id = [self.category_ids[label] is not None for label in found.class_index.tolist()]
        # JSON has no NaN, which half precision may produce.
        kept = np.isfinite(found.boxes_xyxy).all(axis=1) & np.array(has_id, bool)
        found = found.take(np.flatnonzero(kept))
        left_top_size = found.boxes_xyxy.astype(np.float64)
        left_top_size[:, 2:] -= left_top_size[:, :2]
        rows: list[dict[str, object]] = [
            {
                "image_id": self.image_ids[image_id],
                "category_id": self.category_ids[label],
                "bbox": box.tolist(),
                "score": float(score),
            }
            for box, score, label in zip(
                left_top_size, found.scores, found.class_index, strict=True
            )
        ]
        if isinstance(found, Segmentations):
            size = [sample.height, sample.width]
            for row, mask in zip(rows, found.masks.rows(), strict=True):
                row["segmentation"] = {"size": size, "counts": to_text(mask)}
        return rows


def category_ids(class_names: Sequence[str]) -> list[int]:
    """Return COCO's IDs, 1 to 90 with gaps, for its 80 names in any order; else class indices."""
    names = read_yaml("--save-json", COCO, "the file is a part of the project")["names"].values()
    ids = [number for number in range(1, 91) if number not in UNUSED_IDS]
    if len(class_names) == len(ids) == len(set(class_names) & set(names)):
        of_class = dict(zip(names, ids, strict=True))
        return [of_class[name] for name in class_names]
    return list(range(len(class_names)))


def image_ids(paths: Sequence[Path]) -> list[ImageId]:
    """Return the ID of each image.

    COCO's file names are its IDs: if all names without suffix are whole numbers, these are used;
    otherwise the names without suffix, or 1, 2, ... in the order of paths if names repeat.
    """
    ids: list[ImageId] = [path.stem for path in paths]
    if all(path.stem.isascii() and path.stem.isdigit() for path in paths):
        ids = [int(path.stem) for path in paths]
    return ids if len(set(ids)) == len(ids) else list(range(1, len(ids) + 1))
