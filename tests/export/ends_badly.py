"""Replaces the process that writes graphs; the name of its weights says how it ends."""

import os
import signal
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    out, weights = sys.argv[1], sys.argv[2].partition("=")[2]
    deed = Path(weights).name
    if deed == "fails":
        raise KeyError("a defect of ours")
    if deed == "is-killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "stays":
        Path(out).write_text(str(os.getpid()))
        time.sleep(300)
