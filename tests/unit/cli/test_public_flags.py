"""Every public flag works or says what takes its place, and the pages of flags are true."""

import logging

import pytest

from duet.utils.cli.absent_flags import ACCEPTED, DETECTION, EXPORT, TRAINING, VALIDATION
from duet.utils.cli.flags import flags_of
from duet.utils.cli.train_config import TrainConfig, parse_train_flags
from duet.utils.cli.val_config import ValConfig, parse_val_flags
from duet.utils.comparison.settings import compare_parser
from duet.utils.detect.config import DetectConfig, parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig, parse_export_flags
from duet.utils.serve.config import ServeConfig
from tests.flag_page import BACKENDS, DOCS, LANGUAGES, pages

# Of the public YOLOv5 v7, as its --help lists them.
TRAIN_FLAGS = (
    "--weights --cfg --data --hyp --epochs --batch-size --imgsz --img --img-size --rect --resume "
    "--nosave --noval --noautoanchor --noplots --evolve --bucket --cache --image-weights --device "
    "--multi-scale --single-cls --optimizer --sync-bn --workers --project --name --exist-ok --quad "
    "--cos-lr --label-smoothing --patience --freeze --save-period --seed --local_rank --entity "
    "--upload_dataset --bbox_interval --artifact_alias"
)
CLASSIFY_FLAGS = (
    "--model --data --epochs --batch-size --imgsz --img --img-size --nosave --cache --device "
    "--workers --project --name --exist-ok --pretrained --optimizer --lr0 --decay "
    "--label-smoothing --cutoff --dropout --verbose --seed --local_rank"
)
VAL_FLAGS = (
    "--data --weights --batch-size --imgsz --img --img-size --conf-thres --iou-thres --max-det "
    "--task --device --workers --single-cls --augment --verbose --save-txt --save-hybrid "
    "--save-conf --save-json --project --name --exist-ok --half --dnn"
)
EXPORT_FLAGS = (
    "--data --weights --imgsz --img --img-size --batch-size --device --half --inplace --keras "
    "--optimize --int8 --per-tensor --dynamic --cache --simplify --opset --verbose --workspace "
    "--nms --agnostic-nms --topk-per-class --topk-all --iou-thres --conf-thres --include"
)


@pytest.mark.parametrize(
    ("parse", "settings", "absent", "public"),
    [
        (parse_train_flags, TrainConfig, TRAINING, TRAIN_FLAGS),
        (parse_train_flags, TrainConfig, TRAINING, CLASSIFY_FLAGS),
        (parse_val_flags, ValConfig, VALIDATION, VAL_FLAGS),
        (parse_detect_flags, DetectConfig, DETECTION, ""),
        (parse_export_flags, ExportConfig, EXPORT, EXPORT_FLAGS),
    ],
    ids=["train", "classify", "val", "detect", "export"],
)
def test_every_public_flag_is_accepted_or_answered(parse, settings, absent, public, capsys):
    known = {name for found in flags_of(settings).values() for name in found.names}
    assert not known & absent.keys()
    unknown = [flag for flag in public.split() if flag not in known]
    assert {flag.replace("_", "-") for flag in unknown} <= absent.keys()
    words = {word.rstrip(",;") for text in absent.values() for word in text.split()}
    assert {word for word in words if word.startswith("--")} <= known  # what takes the place
    for name, instead in absent.items():
        assert (name in ACCEPTED) == instead.startswith("changes nothing: ")
        if name in ACCEPTED:
            continue
        for written in (name, name.replace("-", "_").replace("__", "--", 1), f"{name}=3"):
            with pytest.raises(UserError) as caught:
                parse(["--weights", "W", written])
            first, second = str(caught.value).splitlines()
            assert first == f"{written.split('=')[0]} is not supported: {instead}"
            assert second.endswith(" --help` lists what is accepted")


@pytest.mark.parametrize(
    ("parse", "absent"),
    [
        (parse_train_flags, TRAINING),
        (parse_val_flags, VALIDATION),
        (parse_detect_flags, DETECTION),
        (parse_export_flags, EXPORT),
    ],
)
def test_a_flag_whose_wish_is_fulfilled_is_taken_with_one_line(parse, absent, caplog, capsys):
    usual = parse(["--weights", "W"])
    for name in ACCEPTED.keys() & absent.keys():
        for written in {name, "--" + name[2:].replace("-", "_")}:
            caplog.clear()
            with caplog.at_level(logging.INFO):
                assert parse(["--weights", "W", written, *ACCEPTED[name] * ["V"]]) == usual
            assert caplog.messages == [f"{written} {absent[name]}"]
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert "SUPPRESS" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "text"), pages().items(), ids=[str(path.relative_to(DOCS)) for path in pages()]
)
def test_the_pages_of_flags_are_those_of_the_parsers(path, text):
    assert path.read_text(encoding="utf-8") == text, "python -m tests.flag_page writes it anew"


def test_all_that_pages_say_of_flags_is_translated_and_no_translation_is_stale():
    settings = TrainConfig, ValConfig, DetectConfig, ExportConfig, ServeConfig
    message = [found.options["help"] for each in settings for found in flags_of(each).values()]
    message += [str(action.help) for action in compare_parser()._actions if action.dest != "help"]
    message += BACKENDS.values()
    assert {" ".join(text.split()) for text in message} == set(LANGUAGES["zh"].translations)
