"""The PyTorch backend: one file per class in `backend/contract/`."""

import torch  # noqa: F401  (a failed import shows here, where backend.select reports it)
