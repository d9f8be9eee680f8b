"""Building blocks of model YAMLs; `graph.py` arranges them, `detector.py` runs them.

Attribute names (cv1, cv2, m, bn) follow the public weights, since they name parameters. Sources:
the public YOLOv5 v6 architecture tables, and the papers cited in each file.
"""
