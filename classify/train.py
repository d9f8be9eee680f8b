"""`python train.py --task classify`, at YOLOv5's place for it; --model is --weights here."""

import os
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    script = str(Path(__file__).resolve().parents[1] / "train.py")
    words = [re.sub(r"^--model(?==|$)", "--weights", word) for word in sys.argv[1:]]
    os.execv(sys.executable, [sys.executable, script, "--task", "classify", *words])
