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
UNREAD_DTYPES = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "uint16", "uint32", "uint64",
)  # fmt: skip
UNTYPED_STORAGE = "torch.storage.UntypedStorage"  # of tensors whose dtype has none of the above

REFUSED_MODELS = {  # the beginning of a name -> what a file is that asks for it, and what to do
    "models.common.AutoShape": "a model wrapped for inference; save the model in it (its .model)",
    "models.common.DetectMultiBackend": "a model wrapped for inference; save the one in it",
    "models.experimental.Ensemble": "an ensemble of models; give the file of one of them",
    "ultralytics.": "a model of the ultralytics package; give one of the public YOLOv5",
}

_COMMON = (
    _join("collections", "OrderedDict")
    | _join("builtins", "set getattr")
    | _join("__builtin__", "set getattr")
)
_SETTINGS = _join("pathlib", "Path PosixPath WindowsPath") | _join("argparse", "Namespace")
_NUMPY = (
    _join("numpy.core.multiarray", "_reconstruct scalar")
    | _join("numpy._core.multiarray", "_reconstruct scalar")
    | _join("numpy.core.numeric", "_frombuffer")
    | _join("numpy._core.numeric", "_frombuffer")
    | _join("numpy", "ndarray dtype")
    | _join("_codecs", "encode")
)
_YOLO = (
    _join(
        "models.yolo",
        "Model BaseModel DetectionModel SegmentationModel ClassificationModel Detect Segment "
        "Detect.forward",
    )
    | _join(
        "models.common",
        "Bottleneck BottleneckCSP C3 C3Ghost C3SPP C3TR C3x Classify Concat Contract Conv "
        "CrossConv DWConv DWConvTranspose2d Expand Focus GhostBottleneck GhostConv Proto SPP "
        "SPPF TransformerBlock TransformerLayer",
    )
    | _join("models.experimental", "CrossConv GhostBottleneck GhostConv MixConv2d Sum")
)
# How a classifier prepares images: read as records, and compared with what is built here.
_TRANSFORMS = (
    _join("torchvision.transforms.transforms", "Compose Normalize ToTensor Resize CenterCrop")
    | _join("torchvision.transforms.functional", "InterpolationMode")
    | _join("utils.augmentations", "CenterCrop LetterBox ToTensor")
)


def _layers(framework: str) -> frozenset[str]:
    modules = f"{framework}.nn.modules"
    return (
        _join(f"{modules}.container", "ModuleList Sequential")
        | _join(f"{modules}.conv", "Conv2d ConvTranspose2d")
        | _join(f"{modules}.batchnorm", "BatchNorm2d")
        | _join(
            f"{modules}.activation",
            "ELU GELU Hardswish LeakyReLU Mish MultiheadAttention PReLU ReLU ReLU6 SiLU Sigmoid "
            "Softplus Tanh",
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
    | _TRANSFORMS
    | _layers("torch")
    | frozenset(STORAGE_DTYPES)
    | _join("torch", "Size device float16 float32 float64 bfloat16 int32 int64 uint8 bool")
    | _join("torch", f"{' '.join(UNREAD_DTYPES)}")
    | frozenset((UNTYPED_STORAGE,))
    | _join("torch.nn.parallel.data_parallel", "DataParallel")
    | _join("torch._utils", "_rebuild_parameter _rebuild_tensor _rebuild_tensor_v2")
    | _join("torch._utils", "_rebuild_tensor_v3")
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
