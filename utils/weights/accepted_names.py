"""The globals that a weights file may name; `pickle_reader.py` refuses any other.

They are patterns for names, and never imported. The classes are from the modules in which the
public YOLOv5 and One-YOLOv5 and their frameworks define layers; a class that is accepted can be
read, but not necessarily built.
"""

from __future__ import annotations

import re

STORAGE_DTYPES = {  # torch storages -> the dtype of their bytes, little-endian
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "|i1",
    "torch.ByteStorage": "|u1",
    "torch.BoolStorage": "|b1",
}
UNTYPED_STORAGE = "torch.storage.UntypedStorage"  # of tensors whose dtype has none of the above

REFUSED_MODELS = {  # the beginning of a name -> what a file is that asks for it, and what to do
    "models.common.AutoShape": "a model wrapped for inference; save the model in it (its .model)",
    "models.common.DetectMultiBackend": "a model wrapped for inference; save the one in it",
    "models.experimental.Ensemble": "an ensemble of models; give the file of one of them",
}
# What a file of the ultralytics package holds that is none of those read.
ANCHOR_FREE_ONLY = (
    "a model of the ultralytics package that is not read here: of that package, detectors of "
    "YOLOv5u and YOLOv8 are; give one of these, or a model of the public YOLOv5"
)
OTHER_PACKAGE = "ultralytics."


def _accepted(framework: str, further: str) -> re.Pattern[str]:
    pattern = rf"""
        collections\.OrderedDict | (builtins|__builtin__)\.(set|getattr)
        | pathlib\.(Posix|Windows)?Path | argparse\.Namespace
        | numpy\.(ndarray|dtype) | _codecs\.encode
        | numpy\._?core\.(multiarray\.(_reconstruct|scalar) | numeric\._frombuffer)
        | models\.(yolo|common|experimental)\.[A-Z]\w* | models\.yolo\.Detect\.forward
        | {framework}\.nn\.modules\.\w+\.[A-Z]\w*
        | {further}
    """
    return re.compile(pattern, re.VERBOSE | re.ASCII)


NOTHING = re.compile(r"(?!)")
# torchvision's transforms define a classifier's preprocessing: they are read as records and
# compared with ours.
TORCH_NAMES = _accepted(
    "torch",
    r"""torch\.(Size | device | \w+Storage | (b?float|u?int)\d\w* | bool)
        | torch\.storage\.UntypedStorage | torch\.nn\.parallel\.data_parallel\.DataParallel
        | torch\._utils\._rebuild_(parameter | tensor(_v[23])?)
        | torchvision\.transforms\.(transforms|functional)\.[A-Z]\w*
        | utils\.augmentations\.[A-Z]\w*
        | ultralytics\.nn\.tasks\.DetectionModel
        | ultralytics\.nn\.modules\.((conv|block|head)\.)?[A-Z]\w*
        | ultralytics\.(yolo\.)?utils\.IterableSimpleNamespace
    """,
)
ONEFLOW_NAMES = _accepted("oneflow", r"oneflow\.(Size | Tensor | nn\.(parameter\.)?Parameter)")
