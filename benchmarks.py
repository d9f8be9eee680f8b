"""YOLOv5's benchmark of exported files, by export.py: the mAP of each file beside the model's.

The folder of this name has the benchmarks of this project: `python -m benchmarks`.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    script = str(Path(__file__).resolve().parent / "export.py")
    usual = ["--include", "onnx", "openvino", "--data", "coco128.yaml"]
    os.execv(sys.executable, [sys.executable, script, *usual, *sys.argv[1:]])
