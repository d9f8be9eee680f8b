"""A model -> a TorchScript trace of it, from which some formats are made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backend import nn, ops
from backend.contract import Tensor
from models.detector import Detector
from models.inference.folding import fold_batch_norm
from utils.export.metadata import Metadata, metadata_as_json
from utils.export.torchscript import require_torchscript
from utils.files.atomic import atomic_file


class Decoded(nn.Module):
    """A model that returns all it predicts, as a file without NMS."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        outputs = self.model.head.exported(self.model(images))
        return outputs if len(outputs) > 1 else outputs[0]


def write_trace(model: Detector, metadata: Metadata, path: Path) -> None:
    """Write the trace of a model with BatchNorm folded, for images of one size and number.

    Raises:
        UserError: the backend has no TorchScript.
    """
    require_torchscript("this format")
    folded = nn.frozen_copy(model)
    fold_batch_norm(folded)
    shape = metadata.batch_size, 3, *metadata.image_size
    example = ops.tensor(np.zeros(shape, np.float32))
    content = nn.to_torchscript(Decoded(folded).eval(), example, metadata_as_json(metadata))
    with atomic_file(path) as file:
        file.write(content)
