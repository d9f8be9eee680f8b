"""A backend for inference only: running a model on it writes an ONNX graph.

A tensor remembers how it is computed (`recording.py`). What a program asks for as NumPy arrays is
computed by ONNX Runtime.
"""

import onnx  # noqa: F401  (a failed import shows here, where backend.select reports it)
import onnxruntime  # noqa: F401
