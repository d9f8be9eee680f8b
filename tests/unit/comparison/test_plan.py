"""compare.py's flags, the runs that they plan, and the command of each."""

import dataclasses
import json
import re
import sys

import pytest

from duet.backend.select import BackendError
from duet.utils.comparison.document import build_document, cells_of
from duet.utils.comparison.plan import VARIANTS, Cell, Pair, Turn, make_cells, make_pairs, turns
from duet.utils.comparison.runs import devices_of, load_record, record_path, train_command
from duet.utils.comparison.settings import parse_flags
from duet.utils.errors import UserError


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """Those that every comparison of this file has; a GPU's driver is there."""
    monkeypatch.setattr("duet.backend.devices.sees_driver", lambda: True)
    pythons = [f"--python={backend}={sys.executable}" for backend in ("torch", "oneflow")]
    return [*pythons, "--project", str(tmp_path / "out")]


def test_runs_take_turns_backend_by_backend_and_round_by_round():
    cells = make_cells(["torch", "oneflow"], ["plain", "fused"], [8, 16])
    once = [
        "torch-plain-b8", "oneflow-plain-b8", "torch-fused-b8", "oneflow-fused-b8",
        "torch-plain-b16", "oneflow-plain-b16", "torch-fused-b16", "oneflow-fused-b16",
    ]  # fmt: skip
    order = [turn.name for turn in turns(cells, 2)]
    assert order == [f"{name}-round{number}" for number in (1, 2) for name in once]
    found = [f"{pair.candidate.name}/{pair.reference.name}" for pair in make_pairs(cells)]
    assert found == [
        f"{names.format(batch)}"
        for batch in (8, 16)
        for names in (
            "oneflow-plain-b{0}/torch-plain-b{0}",
            "oneflow-fused-b{0}/torch-fused-b{0}",
            "torch-fused-b{0}/torch-plain-b{0}",
            "oneflow-fused-b{0}/oneflow-plain-b{0}",
        )
    ]


def test_variants_may_differ_in_what_their_flags_change_and_backends_in_nothing():
    plain = Cell("torch", "plain", 8)
    assert Pair(Cell("torch", "bf16", 8), Cell("oneflow", "bf16", 8)).by_design == set()
    for variant, names in (
        ("cache", {"settings.cache", "cached.training", "cached.validation"}),
        ("bf16", {"precision", "settings.amp"}),
        ("fused", {"settings.bbox_iou_optim", "settings.multi_tensor_optimizer"}),
    ):
        assert Pair(plain, Cell("torch", variant, 8)).by_design == names


def test_settings_are_read_from_the_flags_and_back_from_their_file(flags, tmp_path):
    settings, resumed, folder = parse_flags(
        [*flags, "--batch", "4,8", "--variants", "plain,fused", "--name", "one", "--timeout", "3"]
    )
    assert (resumed, folder) == (None, tmp_path / "out" / "one")
    assert (settings.batches, settings.all_backends) == ((4, 8), ("torch", "oneflow"))
    machine = {"cores": 2}
    document = build_document(settings, {}, machine, "running", "2030-01-02")
    (tmp_path / "compare.json").write_text(json.dumps(document))
    again, before, folder = parse_flags(["--resume", str(tmp_path)])
    assert (before["machine"], folder) == (machine, tmp_path)
    assert again == dataclasses.replace(settings, nproc=1)
    ablated, _, _ = parse_flags([flags[0], *flags[2:], "--backends", "torch", "--ablate"])
    assert ablated.all_variants[0] == "plain"
    assert set(ablated.all_variants) == VARIANTS.keys() - {"fused"}


@pytest.mark.parametrize("content", ["[" * 9000, "{", "[]", "{}", '{"failure": "x"}'])
def test_a_damaged_record_is_measured_again(flags, tmp_path, content):
    turn = next(iter(turns(cells_of(parse_flags(flags)[0]), 1)))
    record_path(tmp_path, turn).parent.mkdir()
    record_path(tmp_path, turn).write_text(content)
    assert load_record(tmp_path, turn) is None


@pytest.mark.parametrize(
    ("wanted", "processes", "measured"),
    [
        ([], 1, "0"),
        (["--device", "cpu"], 1, "cpu"),
        (["--nproc", "2"], 2, "0,1"),
        (["--nproc", "2", "--device", "cpu"], 2, "cpu"),
        (["--device", "1,3"], 2, "1,3"),
    ],
)
def test_processes_are_asked_for_by_their_number_or_by_their_devices(
    flags, tmp_path, wanted, processes, measured
):
    settings, _, _ = parse_flags([*flags, *wanted, "--batch", "4"])
    assert (settings.processes, devices_of(settings)) == (processes, measured)
    command = train_command(settings, Turn(Cell("torch", "plain", 4), 1), tmp_path)
    given = command[command.index("--nproc") + 1] if "--nproc" in command else "1"
    assert given == str(processes)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--nproc", "2", "--batch", "4,5,7"], "--batch 5, 7: the images of all 2 processes"),
        (["--device", "cpu,0"], "--device cpu,0: use different GPUs"),
        (["--batch", "8,x"], "--batch 8,x"),
        (["--batch", "8,8"], "--batch 8,8 has a duplicate"),
        (["--variants", "plain,fastest"], "--variants fastest; accepted: plain, fused"),
        (["--backends", "torch,jax"], "--backends jax; accepted: torch, oneflow"),
        (["--ablate"], "--ablate needs one backend"),
        (["--python", "oneflow=/absent"], "torch=PATH or oneflow=PATH is needed, once"),
        (["--resume", "runs/compare/exp"], "leave out the other flags"),
        (["--name", "../x"], "--name '../x'; accepted: a folder name"),
    ],
)
def test_a_wrong_flag_is_named_before_the_first_run(flags, tmp_path, wrong, message):
    with pytest.raises((UserError, BackendError), match=re.escape(message)):
        parse_flags([*flags, *wrong])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [None, "[" * 9000, "{", "[]", "{}", '{"settings": 3}'])
def test_a_damaged_comparison_is_named(tmp_path, content):
    if content:
        (tmp_path / "compare.json").write_text(content)
    with pytest.raises(UserError, match=f"--resume {tmp_path}: no comparison found"):
        parse_flags(["--resume", str(tmp_path)])


def test_what_is_not_there_is_named_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("duet.utils.comparison.settings.PROJECT", tmp_path)
    with pytest.raises(UserError, match="pip install 'duet-detect.torch.' there, use --python"):
        parse_flags([])
    (tmp_path / "Makefile").touch()
    with pytest.raises(UserError, match="run make setup BACKEND=torch"):
        parse_flags([])
    with pytest.raises(UserError, match="python -m benchmarks.beside times another trainer"):
        parse_flags(["--external", "mine=tool"])
