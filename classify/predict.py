"""`python detect.py`, at YOLOv5's place for models of this task."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    script = str(Path(__file__).resolve().parents[1] / "detect.py")
    os.execv(sys.executable, [sys.executable, script, *sys.argv[1:]])
