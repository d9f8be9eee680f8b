"""The blocks of model YAMLs; `graph.py` places them, `detector.py` runs them.

Attribute names (cv1, cv2, m, bn) are those
of the public weights, since they name parameters. Sources: the public YOLOv5 v6 architecture
tables, and the papers that the files name.
"""
