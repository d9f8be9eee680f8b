"""An inference-only backend: running a model on it records an ONNX graph.

Tensors remember how they are computed (`recording.py`). ONNX Runtime computes their values when
they are converted to NumPy arrays.
"""

import onnx  # noqa: F401  (a failed import shows here, where backend.select reports it)

from duet.backend.system import without_telemetry

with without_telemetry():
    import onnxruntime  # noqa: F401
