"""COCO metrics, equal to pycocotools', and the results file."""
