"""What is neither a model nor a framework; a folder is a subject (docs/en/architecture.md).

Flat lies what several of them share: errors, boxes, detections. No folder imports itself by way of
others, as `tests/structure/test_imports.py` holds.
"""
