"""Flags as fields of a dataclass; every public flag works or is answered; the flag pages."""

import logging
import math
import shlex
from dataclasses import dataclass, fields

import pytest

from duet.utils.cli.absent_flags import ACCEPTED, DETECTION, EXPORT, TRAINING, VALIDATION, VALUE
from duet.utils.cli.flags import (
    GROUPS,
    add_flags,
    as_words,
    check_flags,
    flag,
    flags_of,
    new_parser,
    read_flags,
    whole_from,
)
from duet.utils.cli.train_config import TrainConfig, parse_train_flags
from duet.utils.cli.val_config import ValConfig, parse_val_flags
from duet.utils.comparison.settings import compare_parser
from duet.utils.detect.config import DetectConfig, parse_detect_flags
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig, parse_export_flags
from duet.utils.project import PROJECT
from duet.utils.serve.config import ServeConfig
from tests.flag_page import BACKENDS, DOCS, LANGUAGES, pages


@dataclass(frozen=True)
class Cups:
    number: int = flag("data", "--cups", "--mugs", default=2, check=whole_from(1), help="of tea")
    sugar: bool = flag("model", "--sugar", default=False, help="in each")
    kinds: tuple[str, ...] = flag("data", "--kinds", default=("green",), type=str, nargs="+",
        help="of tea")  # fmt: skip
    milk: str = flag("data", "--milk", default="cow", help="whose")
    strength: float | None = flag("data", "--strength", default=None, type=float, help="of tea")

    def __post_init__(self) -> None:
        check_flags(self)


@dataclass(frozen=True)
class Pots(Cups):
    number: int = 1


def read(settings: type, *arguments: str):
    return read_flags(settings, "cups", "Make tea.", arguments)


def test_parsed_flags_give_values_and_explicit_names():
    values, given = read(Cups, "--mugs", "3", "--kinds", "black", "white", "--sugar")
    assert values == {
        "number": 3,
        "sugar": True,
        "kinds": ("black", "white"),
        "milk": "cow",
        "strength": None,
    }
    assert given == {"number": 3, "sugar": True, "kinds": ("black", "white")}


def test_defaults_match_the_dataclass():
    values, given = read(Cups)
    assert (Cups(**values), given) == (Cups(), {})
    assert {type(value) for value in read(Cups, "--strength", "3")[0].values()} >= {float}


def test_subclass_may_change_a_default_and_keep_its_flag():
    assert read(Pots)[0]["number"] == 1
    assert read(Pots, "--cups", "4")[0]["number"] == 4
    with pytest.raises(UserError, match="--cups 0; accepted: a whole number of at least 1"):
        Pots(0)


def test_help_shows_the_groups_in_their_order(capsys):
    with pytest.raises(SystemExit):
        read(Cups, "--help")
    text = capsys.readouterr().out.partition("Make tea")[2]
    assert text.index("\ndata:\n") < text.index("--cups") < text.index("\nmodel:\n")
    assert text.index("\nmodel:\n") < text.index("--sugar  ")
    assert "detection:" not in text  # empty


def refusal(capsys, *arguments: str) -> list[str]:
    """The lines that a wrong command line is answered with."""
    with pytest.raises(UserError) as caught:
        read(Cups, *arguments)
    assert capsys.readouterr() == ("", "")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--cubs", "3"], "unknown flag --cubs for cups; did you mean --cups?"),
        (["-cups", "3"], "unknown flag -cups for cups; did you mean --cups?"),
        (["--sugra=yes"], "unknown flag --sugra for cups; did you mean --sugar?"),
        (["--xyz"], "unknown flag --xyz for cups"),
        (
            ["--milk", "b c.jpg", "d.jpg", "e.jpg"],
            "unexpected argument 'd.jpg' after 'b c.jpg'; put its flag before it, and quote a "
            "pattern such as 'images/*.jpg'",
        ),
        (["--cups", "two"], "--cups two; accepted: a whole number"),
        (["--cups", ""], "--cups ''; accepted: a whole number"),
        (["--strength", "x"], "--strength x; accepted: a number"),
        (["--cups"], "--cups: its value is missing; of tea"),
    ],
)
def test_wrong_command_line_gives_a_two_line_answer(arguments, answer, capsys):
    assert refusal(capsys, *arguments) == [answer, "`cups --help` lists what is accepted"]


@pytest.mark.parametrize(
    ("parse", "words", "answer"),
    [
        (parse_train_flags, "--lr0 0.01", "--lr0 is not supported: --override lr0=0.01"),
        (parse_train_flags, "--lr 0.01", "--lr is not supported: --override lr0=0.01"),
        (parse_train_flags, "--fl-gamma=2", "--fl-gamma is not supported: --override fl_gamma=2"),
        (parse_train_flags, "--model m.yaml", "--model is not supported: --cfg m.yaml for a"),
        (parse_train_flags, "data=d epochs=1", "unexpected argument 'data=d'; did you mean --data"
         " d --epochs 1?"),
        (parse_train_flags, "--img 64,64", "--img 64,64; accepted: a whole number"),
        (parse_train_flags, "--img 64 32", "unexpected argument '32' after '64'; put its flag"),
        (parse_val_flags, "--remap-classes", "--remap-classes is a flag of duet train, not of val"),
    ],
)  # fmt: skip
def test_foreign_command_line_is_quoted_in_the_answer(parse, words, answer):
    with pytest.raises(UserError) as caught:
        parse(words.split())
    assert str(caught.value).startswith(answer)


def test_unknown_flag_suggests_one_of_its_subcommand():
    """--split is a flag of train.py too, but --splits is nearer."""
    parser = new_parser("records", "")
    parser.add_subparsers().add_parser("pack").add_argument("--splits")
    with pytest.raises(UserError) as caught:
        parser.parse_args(["pack", "--split", "val"])
    assert str(caught.value) == (
        "unknown flag --split for records pack; did you mean --splits?\n"
        "`records pack --help` lists what is accepted"
    )


def test_unknown_flags_are_reported_together(capsys):
    answers = refusal(capsys, "--cubs", "3", "--sugra")
    assert [line.rpartition(" ")[2] for line in answers[:2]] == ["--cups?", "--sugar?"]


def train_parser():
    parser = new_parser("train.py", "")
    add_flags(parser, TrainConfig)
    return parser


@pytest.mark.parametrize("program", [train_parser(), compare_parser()])
def test_help_fits_80_columns_and_shows_plain_defaults(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = program.format_help()
    assert max(map(len, text.splitlines())) <= 80
    assert str(PROJECT) not in text and "('" not in text
    assert "(default: )" not in text and "(default: False)" not in text
    assert "%" not in text


def test_help_shows_project_path_of_default_hyperparameters():
    text = " ".join(train_parser().format_help().split())
    assert "(default: data/hyps/hyp.scratch-low.yaml)" in text
    assert "BatchNorm statistics are still updated (default: 0)" in text


@pytest.mark.parametrize("settings", [TrainConfig, ValConfig])
def test_every_setting_has_exactly_one_flag(settings):
    flags = flags_of(settings)
    assert set(flags) == {field.name for field in fields(settings) if field.compare}
    names = [name for found in flags.values() for name in found.names]
    assert len(names) == len(set(names))
    assert {found.group for found in flags.values()} <= set(GROUPS)


@pytest.mark.parametrize(
    "settings", [TrainConfig, ValConfig, DetectConfig, ExportConfig, ServeConfig]
)
def test_every_number_flag_has_bounds(settings):
    for name, found in flags_of(settings).items():
        kind = found.options.get("type")
        if kind in (int, float) and name not in ("classes", "sizes"):  # checked with the model
            for value in (-(10**9), *([math.nan, math.inf] if kind is float else [])):
                with pytest.raises(UserError, match=f"{found.names[0]} .*; accepted: "):
                    found.check(found.names[0], value)


def test_empty_command_line_gives_default_settings():
    assert parse_train_flags([]) == TrainConfig()
    assert parse_val_flags(["--weights", "W"]) == ValConfig(weights=("W",))


@pytest.mark.parametrize(
    ("parse", "words"),
    [
        (parse_train_flags, ""),
        (parse_train_flags, "--epochs 7 --cos-lr --freeze 3 model.24.m --cache"),
        (parse_train_flags, "'--weights=-odd name.pt' --data 'a b.yaml' --time 0.5"),
        (parse_train_flags, "--bbox_iou_optim --no-multi_tensor_optimizer --save-period -1"),
        (parse_train_flags, "--seed 5 --override lr0=0.1 mosaic=0 --hyp x.yaml --evolve"),
        (parse_export_flags, "--weights W --img 64 96 --nms --conf 0.125 --topk-all 7 --data=-x"),
        (parse_export_flags, "--weights W --dynamic --opset 15"),
    ],
)
def test_settings_survive_conversion_to_words(parse, words):
    config = parse(shlex.split(words))
    assert parse(as_words(config)) == config


def test_words_omit_defaults():
    config = parse_train_flags(["--epochs", "7", "--seed", "0", "--name", "x"])
    assert sorted(as_words(config)) == ["--epochs=7", "--name=x"]


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
            name, _, value = written.partition("=")
            wanted = instead.replace(VALUE, value or VALUE)
            assert first == f"{name} is not supported: {wanted}"
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
def test_redundant_flag_is_accepted_with_one_log_line(parse, absent, caplog, capsys):
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
def test_flag_pages_match_the_parsers(path, text):
    assert path.read_text(encoding="utf-8") == text, "python -m tests.flag_page writes it anew"


def test_flag_translations_are_complete_and_current():
    settings = TrainConfig, ValConfig, DetectConfig, ExportConfig, ServeConfig
    message = [found.options["help"] for each in settings for found in flags_of(each).values()]
    message += [str(action.help) for action in compare_parser()._actions if action.dest != "help"]
    message += BACKENDS.values()
    assert {" ".join(text.split()) for text in message} == set(LANGUAGES["zh"].translations)
