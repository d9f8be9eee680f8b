"""What a comparison consists of, and the flags that say so."""

import dataclasses
import json
import re
import sys

import pytest
import yaml

from tests.small import write_small_dataset
from utils.comparison.document import cells_of
from utils.comparison.execution import (
    devices_of,
    external_command,
    load_record,
    record_path,
    train_command,
)
from utils.comparison.plan import VARIANTS, Cell, Pair, Turn, make_cells, make_pairs, turns
from utils.comparison.report_files import read_document
from utils.comparison.settings import load_settings, parse_flags
from utils.errors import UserError


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """Those that every comparison of this file has; a GPU's driver is there."""
    monkeypatch.setattr("utils.state.start_checks.sees_driver", lambda: True)
    python = tmp_path / "python"
    python.touch()
    return ["--python", f"torch={python}", "--python", f"oneflow={python}"]


def test_runs_take_turns_backend_by_backend_and_round_by_round():
    cells = make_cells(["torch", "oneflow"], ["plain", "fused"], [8, 16], ["mine"])
    order = [turn.name for turn in turns(cells, 2)]
    once = [
        "torch-plain-b8", "oneflow-plain-b8", "torch-fused-b8", "oneflow-fused-b8",
        "mine-external-b8",
        "torch-plain-b16", "oneflow-plain-b16", "torch-fused-b16", "oneflow-fused-b16",
        "mine-external-b16",
    ]  # fmt: skip
    assert order == [f"{name}-round{number}" for number in (1, 2) for name in once]


def test_pairs_hold_one_thing_at_a_time_against_its_reference():
    cells = make_cells(["torch", "oneflow"], ["plain", "fused"], [8, 16], ["mine"])
    found = {f"{pair.candidate.name}/{pair.reference.name}" for pair in make_pairs(cells)}
    assert found == {
        f"{names.format(batch)}"
        for batch in (8, 16)
        for names in (
            "oneflow-plain-b{0}/torch-plain-b{0}",
            "oneflow-fused-b{0}/torch-fused-b{0}",
            "torch-fused-b{0}/torch-plain-b{0}",
            "oneflow-fused-b{0}/oneflow-plain-b{0}",
            "mine-external-b{0}/torch-plain-b{0}",
        )
    }


def test_variants_may_differ_in_what_their_flags_change_and_backends_in_nothing():
    across = Pair(Cell("torch", "bf16", 8), Cell("oneflow", "bf16", 8))
    variant = Pair(Cell("torch", "plain", 8), Cell("torch", "bf16", 8))
    fused = Pair(Cell("torch", "plain", 8), Cell("torch", "fused", 8))
    cache = Pair(Cell("torch", "plain", 8), Cell("torch", "cache", 8))
    assert across.by_design == set()
    assert cache.by_design == {"settings.cache", "cached.training", "cached.validation"}
    assert variant.by_design == {"precision", "settings.amp"}
    assert fused.by_design == {"settings.bbox_iou_optim", "settings.multi_tensor_optimizer"}


def test_settings_are_read_from_the_flags_and_back_from_their_file(flags, tmp_path):
    settings, resumed, folder = parse_flags([
        *flags, "--batch", "4,8", "--variants", "plain,fused", "--external",
        "mine=tool 'a b' --batch {batch}", "--external-results", "mine={folder}/r.csv",
        "--project", str(tmp_path), "--name", "one",
    ])  # fmt: skip
    assert (resumed, folder) == (None, tmp_path / "one")
    assert (settings.batches, settings.backends) == ((4, 8), ("torch", "oneflow"))
    assert settings.externals[0].command == ("tool", "a b", "--batch", "{batch}")
    assert settings.total_epochs == 3
    settings.save(tmp_path)
    assert load_settings(tmp_path) == settings
    assert parse_flags(["--resume", str(tmp_path)]) == (settings, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("batches", []), ("batches", 4), ("batches", ["4"]), ("nproc", "2"), ("epochs", 1.5),
     ("pythons", []), ("externals", [{}]), ("variants", [[]]), ("seed", 10**400), ("more", 1)],
)  # fmt: skip
def test_damaged_settings_of_a_comparison_are_one_error(flags, tmp_path, name, value):
    settings, _, _ = parse_flags([*flags, "--project", str(tmp_path), "--name", "one"])
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**dataclasses.asdict(settings), name: value}))
    with pytest.raises(UserError, match=f"--resume {tmp_path}: no comparison"):
        load_settings(tmp_path)


@pytest.mark.parametrize("content", ["[" * 9000, "{", "[]", "{}", '{"failure": "x"}'])
def test_a_damaged_record_is_measured_again_and_a_damaged_comparison_named(
    flags, tmp_path, content
):
    settings, _, _ = parse_flags([*flags, "--project", str(tmp_path), "--name", "one"])
    turn = next(iter(turns(cells_of(settings), 1)))
    record_path(tmp_path, turn).parent.mkdir()
    for path in (record_path(tmp_path, turn), tmp_path / "compare.json"):
        path.write_text(content)
    assert load_record(tmp_path, turn) is None
    with pytest.raises(UserError, match=f"--resume {tmp_path}: compare.json"):
        read_document(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "processes", "measured"),
    [
        ([], 1, "0"),
        (["--device", "cpu"], 1, "cpu"),
        (["--nproc", "2"], 2, "0,1"),
        (["--nproc", "2", "--device", "cpu"], 2, "cpu"),
        (["--device", "1,3"], 2, "1,3"),
        (["--device", "1,3", "--nproc", "2"], 2, "1,3"),
    ],
)
def test_processes_are_asked_for_by_their_number_or_by_their_devices(
    flags, tmp_path, wanted, processes, measured
):
    tool = "mine=tool --ranks {nproc} --gpus '{device}'"
    settings, _, _ = parse_flags([*flags, *wanted, "--batch", "4", "--external", tool])
    assert (settings.nproc, devices_of(settings)) == (processes, measured)
    turn = Turn(Cell("torch", "plain", 4), 1)
    command = train_command(settings, turn, tmp_path)
    given = command[command.index("--nproc") + 1] if "--nproc" in command else "1"
    assert given == str(processes)
    external = external_command(settings, settings.externals[0], turn, tmp_path)
    assert external == ["tool", "--ranks", str(processes), "--gpus", settings.device]


def test_runs_draw_the_split_that_is_asked_for(flags, tmp_path):
    yaml_path = write_small_dataset(tmp_path)
    whole = [*flags, "--data", str(yaml_path), "--split", "0.5", "--project", str(tmp_path)]
    with pytest.raises(UserError, match="--split 0.5: .* has a split for validation"):
        parse_flags(whole)
    document = yaml.safe_load(yaml_path.read_text())
    document.pop("val")
    yaml_path.write_text(yaml.safe_dump(document))
    drawn = [*flags, "--data", str(yaml_path), "--split", "0.65", "--project", str(tmp_path)]
    settings, _, _ = parse_flags(drawn)
    command = train_command(settings, Turn(Cell("torch", "plain", 4), 1), tmp_path)
    assert command[command.index("--split") + 1] == "0.65"
    for wrong in ("0", "1", "nan"):
        with pytest.raises(UserError, match=f"--split {wrong}; a fraction is needed"):
            parse_flags([*drawn, "--split", wrong])


def test_a_comparison_that_was_begun_before_a_split_could_be_drawn_goes_on(flags, tmp_path):
    settings, _, _ = parse_flags([*flags, "--project", str(tmp_path), "--name", "one"])
    document = dataclasses.asdict(settings)
    del document["train_part"]
    (tmp_path / "settings.json").write_text(json.dumps(document))
    assert load_settings(tmp_path) == settings
    command = train_command(settings, Turn(Cell("torch", "plain", 8), 1), tmp_path)
    assert "--split" not in command


@pytest.mark.parametrize("processes", [1, 2])
def test_ablation_has_the_plain_run_and_each_option_alone(flags, processes):
    wanted = ["--backends", "torch", "--ablate", "--nproc", str(processes)]
    settings, _, _ = parse_flags([*flags[:2], *wanted])
    assert settings.nproc == processes
    assert settings.variants[0] == "plain"
    assert set(settings.variants) == VARIANTS.keys() - {"fused"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--nproc", "2", "--batch", "4,5,7"], "--batch 5, 7: the images of all 2 processes"),
        (["--nproc", "-1"], "--nproc -1"),
        (["--nproc", "2", "--device", "0"], "2 processes need 2 devices, not 1"),
        (["--device", "0,1", "--batch", "3"], "--batch 3: the images of all 2 processes"),
        (["--device", "cpu,0"], "--device cpu,0: give different GPUs"),
        (["--batch", "8,x"], "--batch 8,x"),
        (["--batch", "8,8"], "twice"),
        (["--batch", "0"], "--batch 0"),
        (["--epochs", "0"], "--epochs 0"),
        (["--rounds", "0"], "--rounds 0"),
        (["--variants", "plain,fastest"], "accepted: plain, fused"),
        (["--backends", "torch,jax"], "--backends torch,jax|--backends jax"),
        (["--ablate"], "--ablate takes one backend"),
        (["--python", "oneflow=/absent"], "names one of torch, oneflow twice"),
        (["--external", "mine"], "NAME=... is needed"),
        (["--external", "torch=tool {batch}"], "no backend's"),
        (["--external", "a/b=tool {batch}"], "letters"),
        (["--external", "mine=tool"], "{batch}"),
        (["--external", "mine=tool '{batch}"], "No closing quotation"),
        (["--external-results", "mine=x"], "give --external mine"),
        (["--resume", "runs/compare/exp"], "leave out the other flags"),
        (["--timeout", "nan"], "--timeout nan"),
    ],
)
def test_wrong_flags_are_named(flags, wrong, message):
    with pytest.raises(UserError, match=message.replace("{", r"\{").replace(".", r"\.")):
        parse_flags([*flags, *wrong])


def test_an_environment_that_is_absent_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("utils.comparison.settings.PROJECT", tmp_path)
    with pytest.raises(UserError, match="make setup BACKEND=torch"):
        parse_flags([])
    with pytest.raises(UserError, match="no comparison was begun there"):
        parse_flags(["--resume", str(tmp_path)])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "absent"], "--data absent: no dataset YAML"),
        (["--img", "100"], "--img 100 is no multiple of the model's stride 32; use 128"),
        (["--cfg", "absent.yaml"], "--cfg absent.yaml: there is no such file"),
        (["--hyp", "absent.yaml"], "--hyp absent.yaml: No such file"),
        (["--weights", "absent.pt"], "--weights absent.pt: no such file"),
        (["--device", "gpu"], "--device 'gpu'"),
        (["--name", "../x"], "--name '../x'; the name of one folder"),
        (["--name", ""], "--name ''"),
        (["--project", "/proc/x"], "--project /proc/x"),
    ],
)
def test_a_flag_that_would_fail_every_run_is_refused_before_the_first(flags, message, tmp_path):
    pythons = [f"--python={name}={sys.executable}" for name in ("torch", "oneflow")]
    with pytest.raises(UserError, match=re.escape(message)):
        parse_flags([*pythons, "--project", str(tmp_path / "out"), *flags])
    assert not (tmp_path / "out").exists()
