# Runs without a framework.
from map_example import detections_of, found, objects, truth_of

from duet.utils.boxes import pairwise_iou


def match(threshold):
    """All detections, the highest score first: (score, IoU with the object found, or None)."""
    rows = []
    for image in range(len(found)):
        detections, truth = detections_of(image), truth_of(image)
        iou = pairwise_iou(detections.boxes_xyxy, truth.boxes_xyxy)
        free = set(range(len(objects[image])))
        for index in (-detections.scores).argsort(kind="stable"):
            best = max(free, key=lambda number: iou[index, number], default=None)
            hit = best is not None and iou[index, best] >= threshold
            if hit:
                free.remove(best)
            rows.append((float(detections.scores[index]), iou[index, best] if hit else None))
    return sorted(rows, key=lambda row: -row[0])


if __name__ == "__main__":
    for threshold in (0.5, 0.75):
        print(f"IoU threshold {threshold}")
        for score, iou in match(threshold):
            print(f"  score {score:.2f}: " + ("wrong" if iou is None else f"right, IoU {iou:.2f}"))
