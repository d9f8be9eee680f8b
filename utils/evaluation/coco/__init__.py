"""COCO's metric, equal to pycocotools, and its file formats."""
