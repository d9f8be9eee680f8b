"""The blocks of model YAMLs; `graph.py` places them, `detector.py` runs them.

Importing this registers all of them (`registry.py`). Attribute names (cv1, cv2, m, bn) are those
of the public weights, since they name parameters. Sources: the public YOLOv5 v6 architecture
tables, and the papers that the files name.
"""

import models.blocks.bottleneck
import models.blocks.conv
import models.blocks.pooling
import models.blocks.transformer  # noqa: F401
