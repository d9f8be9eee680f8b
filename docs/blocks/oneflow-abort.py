# --8<-- [start:page]
# Runs on oneflow.
import subprocess
import sys

from duet import backend

backend.use()

import numpy as np

from duet.backend import ops

code = "import oneflow as f; print(f.ones(2)[f.tensor([5])].numpy())"
ended = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True
)
print(f"oneflow: the process ends by signal {-ended.returncode}")
print("Python can catch it:", "Traceback" in ended.stderr)

rows = ops.tensor(np.ones((2, 3), np.float32))
try:
    ops.take_rows(rows, ops.tensor(np.array([5])))
except ValueError as error:
    print(f"Duet: {error}")
# --8<-- [end:page]
