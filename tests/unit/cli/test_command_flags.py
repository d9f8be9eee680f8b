"""The flags of each command: what parses, and what is refused with which message."""

import shlex
from pathlib import Path

import pytest

from duet.models.evaluation.audit.audit_config import parse_audit_flags
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.cli.train_config import parse_train_flags, read_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.detect.config import DetectConfig, parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.export.config import parse_export_flags
from duet.utils.export.formats import FORMATS
from duet.utils.geometry.tiling import Tiling
from duet.utils.serve.config import parse_serve_flags

SWITCHES = (
    "save_txt", "save_conf", "save_csv", "save_json", "save_crop", "nosave", "hide_labels",
    "hide_conf",
)  # fmt: skip

PARSERS = {
    "train": parse_train_flags,
    "val": parse_val_flags,
    "detect": parse_detect_flags,
    "export": parse_export_flags,
    "audit": parse_audit_flags,
    "serve": parse_serve_flags,
}
# Command, flags, and a part of the message; a $ ends it.
REFUSED = [
    ("train", "--img 16", "--img 16; accepted: a whole number from 32 to 16384"),
    ("train", "--batch 0", "--batch-size 0; accepted: a whole number of at least 1, or -1 to meas"),
    ("train", "--batch -2", "--batch-size -2"),
    ("train", "--batch -1 --micro-batch 4", "--micro-batch needs a fixed --batch-size"),
    ("train", "--time -1", "--time -1"),
    ("train", "--time nan", "--time nan"),
    ("train", "--time inf", "a number of hours of at least 0"),
    ("train", "--nosave --save-period 2", "--nosave keeps only the last weights, --save-per"),
    ("train", "--name ''", "--name ''; accepted: a folder name"),
    ("train", "--evolve --nosave", "--evolve with --nosave: a search keeps its best weights; remo"),
    ("train", "--evolve --resume", "--evolve with --resume: the same command continues a search"),
    ("train", "--image-weights --noval", "--image-weights with --noval: images are weighted by"),
    ("train", "--rect --close-mosaic 5", "--rect with --close-mosaic: "),
    ("train", "--compile --multi-scale", "--multi-scale with --compile: each size would be"),
    ("train", "--compile --rect", "--rect with --compile: each shape would be recompiled"),
    ("train", "--quad", "double --img"),
    ("train", "--cfg M --remap-classes", "--remap-classes reuses classes of --weights"),
    ("train", "--cfg M --storage F", "--storage is the file of a search; add --evolve"),
    ("train", "--fraction 0", "--fraction 0; accepted: a number above 0"),
    ("val", "", "--weights is required"),
    ("val", "--weights W --conf 2", "--conf 2"),
    ("val", "--weights W --max-det 0", "--max-det 0"),
    ("val", "--weights W --single-cls --classes 0", "--single-cls with --classes: "),
    ("val", "--weights W --single-cls --annotations F", "--single-cls with --annot"),
    ("val", "--weights W --task study", "speed. For a study, run val.py with"),
    ("val", "--weights W --task no", "--task no; accepted: train, val, test, speed$"),
    ("val", "--weights W --save-conf", "--save-conf adds scores to the files of --save-txt"),
    ("val", "--weights W --tile 63", "--tile 63; accepted: 0, or at least 64 pixels"),
    ("val", "--weights W --tile -640", "--tile -640; accepted: 0, or at least 64 pixels"),
    ("val", "--weights W --tile 640 --overlap 0", "--overlap 0; accepted: a number from 0.1 to"),
    ("val", "--weights W --tile 640 --overlap 1", "--overlap 1; accepted: a number from 0.1 to"),
    ("val", "--weights W --tile 640 --overlap nan", "--overlap nan; accepted: a number from 0.1"),
    ("val", "--weights W --overlap 0.2", "--overlap 0.2 is the overlap of tiles; add --tile"),
    ("val", "--weights W --tile 640 --square", "--square with --tile"),
    ("detect", "--weights W --line-thickness 0", "--line-thickness 0; accepted: a whole number fr"),
    ("detect", "--weights W --line-thickness 1001", "from 1 to 1000"),
    ("detect", "--weights W --save-conf", "--save-txt"),
    ("export", "", "--weights is required: a .safetensors of a training, a .pt of YOLOv5"),
    ("export", "--weights W --include pb", "--include pb: no such format; accepted: onnx"),
    ("export", "--weights W --include onnx,openvino", "not commas: --include onnx openvino"),
    ("export", "--weights W --include ''", "--include : no such format"),
    ("export", "--weights W --imgsz 64 64 64", "--imgsz: 3 numbers; accepted: one, or height and"),
    ("export", "--weights W --half --int8 --data D", "--half and --int8: a file has one precision"),
    ("export", "--weights W --int8", "--int8 is calibrated on images; name their dataset with"),
    ("export", "--weights W --topk-all 7", "--topk-all is a setting of NMS in the graph; give"),
    ("export", "--weights W --nms --agnostic-nms --topk-per-class 7", "--topk-per-class: --agnos"),
    ("export", "--weights W --conf 0.3", "--conf-thres is a setting of NMS in the graph; give"),
    ("export", "--weights W --raw --nms", "--raw with --nms: boards take float32 graphs of one si"),
    ("export", "--weights W --raw --dynamic", "--raw with --dynamic"),
    ("export", "--weights W --raw --include openvino", "--raw writes ONNX"),
    ("export", "--weights W --raw --opset 21", "--opset 21; accepted with --raw: from 12 to 19"),
    ("export", "--weights W --opset 3", "--opset 3; accepted without --raw: from 13 to 21"),
    ("export", "--weights W --opset 12", "--opset 12; accepted without --raw: from 13 to 21"),
    ("export", "--weights W --raw boxes", "--raw boxes; accepted: maps, sigmoid, split, split-sig"),
    ("export", "--weights W --calibration-list F", "--calibration-list lists images of --data; na"),
    ("audit", "--weights W", "--data is required"),
    ("audit", "--data D", "--weights is required"),
    ("audit", "--data D --weights W --conf 1.5", "--conf 1.5; accepted: a number from 0 to 1"),
    ("audit", "--data D --weights W --top 0", "--top 0"),
    ("audit", "--data D --weights W --split 1", "--split 1"),
    ("serve", "", "--weights is required"),
    ("serve", "--weights =b", "--weights: the name '' of a model is blank or"),
    ("serve", "--weights ' ' x", "--weights"),
    ("serve", "--weights a/best.pt b/best.pt", "name 'best' of a model is used twice; name each"),
    ("serve", "--weights \x1b=b", "the name '\\x1b' of a model is blank or not printable"),
    ("serve", "--weights W --port 65536", "--port 65536; accepted: a whole number from 0 to 65535"),
]


@pytest.mark.parametrize(("command", "flags", "message"), REFUSED)
def test_wrong_or_ineffective_flag_value_is_refused(command, flags, message):
    with pytest.raises(UserError) as caught:
        PARSERS[command](shlex.split(flags))
    assert message in f"{caught.value}$"


def parse(command, flags=""):
    return PARSERS[command](["--weights", "W", *shlex.split(flags)])


EXPORT = (
    "--weights W --include onnx --imgsz 640 480 --batch-size 2 --nms --topk-per-class 5 "
    "--topk-all 50 --iou-thres 0.5 --conf-thres 0.3 --opset 14 --half"
)
SPEED = "--weights W --task speed"
SMALL_TILES = "--weights W --tile 320 --overlap 0.25 --batch-size 4"
# Command, flags, and settings that they give; without flags, the public defaults.
GIVEN = [
    ("train", "", {"epochs": 100, "batch_size": 16, "image_size": 640, "seed": 0,
                   "project": Path("runs/train"), "optimizer": "SGD", "workers": None,
                   "hyp": DEFAULT_HYPERPARAMETERS, "freeze": ("0",),  # the first 0 layers
                   "bbox_iou_optim": None, "multi_tensor_optimizer": None}),  # automatic
    ("train", "--multi-scale --image-weights", {"multi_scale": True, "image_weights": True}),
    ("train", "--rect --multi-scale --single-cls", {"rect": True, "single_class": True}),
    ("train", "--compile --fraction 0.5", {"compile": True}),
    ("train", "--nosave --save-period 0", {"no_save": True}),
    ("train", "--epochs 10", {"mosaic_epochs": None}),
    ("train", "--epochs 10 --close-mosaic 0", {"mosaic_epochs": None}),
    ("train", "--epochs 10 --close-mosaic 3", {"mosaic_epochs": 7}),
    ("train", "--epochs 10 --close-mosaic 20", {"mosaic_epochs": 0}),
    ("val", "--weights A B", {"weights": ("A", "B"), "split": "val", "classes": None,
                              "iou_threshold": 0.6, "confidence_threshold": 0.001,
                              "batch_size": 32, "max_detections": 300, "tiling": None}),
    ("val", SPEED, {"split": "val", "confidence_threshold": 0.25, "iou_threshold": 0.45}),
    ("val", f"{SPEED} --iou 0.6", {"confidence_threshold": 0.25, "iou_threshold": 0.6}),
    ("val", "--weights W --task test", {"split": "test"}),
    ("val", "--weights W --tile 640", {"tiling": Tiling(640, 0.2, 32)}),
    ("val", SMALL_TILES, {"tiling": Tiling(320, 0.25, 4)}),
    ("detect", SMALL_TILES, {"tiling": Tiling(320, 0.25, 4)}),
    ("detect", "--weights W", {"line_thickness": None, **dict.fromkeys(SWITCHES, False)}),
    ("detect", f"--weights W --{' --'.join(SWITCHES).replace('_', '-')} --line-thickness 3",
     {"line_thickness": 3, **dict.fromkeys(SWITCHES, True)}),
    ("export", "--weights W", {"include": ("onnx",), "sizes": (), "batch_size": 1, "top_all": 100,
                               "top_per_class": 100, "iou_threshold": 0.45, "device": "cpu",
                               "confidence_threshold": 0.25, "precision": "float32"}),
    ("export", "--weights W --imgsz 320", {"image_size": (320, 320)}),
    ("export", EXPORT, {"include": ("onnx",), "image_size": (640, 480), "batch_size": 2,
                        "nms": True, "half": True, "top_per_class": 5, "top_all": 50, "opset": 14,
                        "iou_threshold": 0.5, "confidence_threshold": 0.3,
                        "precision": "float16"}),
    ("export", "--weights W --nms --conf-thres 0.3 --iou 0.6 --agnostic-nms --topk-all 7",
     {"suppression": SuppressionSettings(0.3, 0.6, True, None, 7, multi_label=False)}),
    ("audit", "--data D --weights W V --task train --conf 0.3",
     {"data": "D", "weights": ("W", "V"), "task": "train", "lowest_score": 0.3}),
    ("serve", "--weights runs/a/best.pt night=runs/a=b/best.pt ./x=y.pt openvino_model/",
     {"models": (("best", "runs/a/best.pt"), ("night", "runs/a=b/best.pt"), ("x=y", "./x=y.pt"),
                 ("openvino_model", "openvino_model/"))}),
    ("audit", "--data D --weights W", {"task": "val", "project": Path("runs/audit"),
                                       "image_size": None, "lowest_score": None}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "flags", "wanted"), GIVEN)
def test_flags_set_values_and_defaults_are_public(command, flags, wanted):
    config = PARSERS[command](shlex.split(flags))
    assert {name: getattr(config, name) for name in wanted} == wanted


def test_explicit_flags_are_distinguished_from_defaults():
    values, given = read_train_flags(["--epochs", "100", "--batch", "4", "--resume", "--cache"])
    assert given == {"epochs": 100, "batch_size": 4, "resume": "newest", "cache": "ram"}
    assert given.items() <= values.items()
    assert read_train_flags([])[1] == {}
    assert values["resume"] == "newest" and read_train_flags([])[0]["resume"] == ""


def test_batch_size_must_be_divisible_by_process_count():
    config = parse_train_flags(["--batch", "12"])
    config.check_processes(3)
    with pytest.raises(UserError, match="12 is the total over 5 .* by 5; use 10 or 15$"):
        config.check_processes(5)
    parse_train_flags(["--batch-size", "-1"]).check_processes(5)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
@pytest.mark.parametrize("flag", ["--nms", "--int8 --data D"])
def test_export_flag_of_another_format_is_refused(row, flag):
    words = f"--include {row.name} {flag}"
    if flag.split()[0][2:] in row.flags:
        parse("export", words)
    else:
        with pytest.raises(UserError, match=f"--include {row.name} does not support --.*that do: "):
            parse("export", words)


def test_shared_flags_have_the_defaults_of_detect():
    config = parse("serve")
    for name in ("confidence_threshold", "iou_threshold", "max_detections", "image_size",
                 "max_pixels", "device", "backend", "runtime", "half"):  # fmt: skip
        assert getattr(config, name) == getattr(DetectConfig, name)
    assert config.host == "127.0.0.1"


def test_audit_help_promises_only_accepted_weights(capsys):
    with pytest.raises(SystemExit):
        parse_audit_flags(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--weights F [F ...] weights files of trainings or of YOLOv5" in shown
