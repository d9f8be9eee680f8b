"""The globals that a weights file may name; `pickle_reader.py` refuses any other.

They are text to compare with, not things to import. The classes are those of the public YOLOv5
and One-YOLOv5 trees; accepting one says that it may be read, not that this project can build it.
"""

from __future__ import annotations


def _join(module: str, names: str) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for name in names.split())


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

_COMMON = _join("collections", "OrderedDict") | frozenset(("__builtin__.set", "builtins.set"))
_SETTINGS = _join("pathlib", "Path PosixPath WindowsPath") | _join("argparse", "Namespace")
_NUMPY = (
    _join("numpy.core.multiarray", "_reconstruct scalar")
    | _join("numpy._core.multiarray", "_reconstruct scalar")
    | _join("numpy", "ndarray dtype")
    | _join("_codecs", "encode")
)
_YOLO = (
    _join(
        "models.yolo",
        "Model BaseModel DetectionModel SegmentationModel ClassificationModel Detect Segment",
    )
    | _join(
        "models.common",
        "AutoShape Bottleneck BottleneckCSP C3 C3Ghost C3SPP C3TR C3x Classify Concat Contract "
        "Conv CrossConv DWConv DWConvTranspose2d Expand Focus GhostBottleneck GhostConv Proto "
        "SPP SPPF TransformerBlock TransformerLayer",
    )
    | _join("models.experimental", "CrossConv Ensemble MixConv2d Sum")
)


def _layers(framework: str) -> frozenset[str]:
    modules = f"{framework}.nn.modules"
    return (
        _join(f"{modules}.container", "ModuleList Sequential")
        | _join(f"{modules}.conv", "Conv2d ConvTranspose2d")
        | _join(f"{modules}.batchnorm", "BatchNorm2d")
        | _join(
            f"{modules}.activation",
            "Hardswish LeakyReLU Mish MultiheadAttention ReLU ReLU6 SiLU Sigmoid",
        )
        | _join(f"{modules}.pooling", "AdaptiveAvgPool2d AvgPool2d MaxPool2d")
        | _join(f"{modules}.upsampling", "Upsample")
        | _join(f"{modules}.linear", "Identity Linear NonDynamicallyQuantizableLinear")
        | _join(f"{modules}.normalization", "LayerNorm")
        | _join(f"{modules}.padding", "ZeroPad2d")
        | _join(f"{modules}.dropout", "Dropout")
    )


TORCH_NAMES = (
    _COMMON
    | _SETTINGS
    | _NUMPY
    | _YOLO
    | _layers("torch")
    | frozenset(STORAGE_DTYPES)
    | _join("torch", "Size device float16 float32 float64 bfloat16 int32 int64 uint8 bool")
    | _join("torch._utils", "_rebuild_parameter _rebuild_tensor _rebuild_tensor_v2")
)
ONEFLOW_NAMES = (
    _COMMON
    | _SETTINGS
    | _NUMPY
    | _YOLO
    | _layers("oneflow")
    | _join("oneflow", "Size Tensor")
    | _join("oneflow.nn", "Parameter")
    | _join("oneflow.nn.parameter", "Parameter")
)
