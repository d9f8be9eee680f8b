"""`python train.py --task segment`, at YOLOv5's place for it."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    script = str(Path(__file__).resolve().parents[1] / "train.py")
    os.execv(sys.executable, [sys.executable, script, "--task", "segment", *sys.argv[1:]])
