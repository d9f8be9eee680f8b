"""compare.py's flags and runs, and how it judges them: equal work, losses, ratios beyond noise."""

import dataclasses
import json
import re
import sys

import pytest

from duet.backend.select import BackendError
from duet.utils.comparison.document import (
    HALF_TOLERANCE,
    TOLERANCE,
    build_document,
    differences,
    epoch_ratios,
    loss_gap,
    verdict,
)
from duet.utils.comparison.runs import devices_of, load_record, record_path, train_command
from duet.utils.comparison.settings import (
    VARIANTS,
    Cell,
    Pair,
    Settings,
    Turn,
    make_pairs,
    parse_flags,
    turns,
)
from duet.utils.errors import UserError


@pytest.fixture
def flags(tmp_path, monkeypatch):
    """Those that every comparison of this file has; a GPU's driver is there."""
    monkeypatch.setattr("duet.backend.devices.sees_driver", lambda: True)
    pythons = [f"--python={backend}={sys.executable}" for backend in ("torch", "oneflow")]
    return [*pythons, "--project", str(tmp_path / "out")]


def test_runs_alternate_backends_within_each_round():
    cells = Settings(backends="torch,oneflow", variants="plain,fused", batch="8,16").cells
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


def test_backends_match_and_variants_differ_only_by_flags():
    plain = Cell("torch", "plain", 8)
    assert Pair(Cell("torch", "bf16", 8), Cell("oneflow", "bf16", 8)).by_design == set()
    for variant, names in (
        ("cache", {"settings.cache", "cached.training", "cached.validation"}),
        ("bf16", {"precision", "settings.amp"}),
        ("fused", {"settings.bbox_iou_optim", "settings.multi_tensor_optimizer"}),
    ):
        assert Pair(plain, Cell("torch", variant, 8)).by_design == names


def test_comparison_settings_survive_their_file(flags, tmp_path):
    settings, resumed, folder = parse_flags(
        [*flags, "--batch", "4,8", "--variants", "plain,fused", "--name", "one", "--timeout", "3",
         "--split", "3/5"]
    )  # fmt: skip
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


@pytest.mark.parametrize(
    "content", ["[" * 9000, "{", "[]", "{}", '{"failure": "x"}', '{"failure": null}']
)
def test_damaged_record_is_measured_again(flags, tmp_path, content):
    turn = next(iter(turns(parse_flags(flags)[0].cells, 1)))
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
def test_process_count_comes_from_nproc_or_device_list(
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
def test_wrong_flag_is_reported_before_the_first_run(flags, tmp_path, wrong, message):
    with pytest.raises((UserError, BackendError), match=re.escape(message)):
        parse_flags([*flags, *wrong])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [None, "[" * 9000, "{", "[]", "{}", '{"settings": 3}'])
def test_damaged_comparison_is_reported(tmp_path, content):
    text = f"{tmp_path}/compare.json: No such file or directory"
    if content:
        (tmp_path / "compare.json").write_text(content)
        text = "compare.json: .*"
    text = f"--resume {tmp_path}: no comparison found [(]{text}[)]; give the folder"
    with pytest.raises(UserError, match=text):
        parse_flags(["--resume", str(tmp_path)])


@pytest.mark.parametrize("change", [{"machine": []}, {"train_part": "x"}, {"train_part": [1]}])
def test_comparison_with_wrong_value_type_is_damaged(flags, tmp_path, change):
    document = build_document(parse_flags(flags)[0], {}, {"cores": 2}, "running", "2030-01-02")
    for part in (document, document["settings"]):
        part.update({name: value for name, value in change.items() if name in part})
    (tmp_path / "compare.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=f"--resume {tmp_path}: no comparison found"):
        parse_flags(["--resume", str(tmp_path)])


def test_missing_python_is_reported_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("duet.utils.comparison.settings.PROJECT", tmp_path)
    with pytest.raises(UserError, match="run make setup BACKEND=torch"):
        parse_flags([])
    with pytest.raises(UserError, match="python -m benchmarks.beside times another trainer"):
        parse_flags(["--external", "mine=tool"])


def run(cell="torch", work=None, losses=((1.0, 2.0, 3.0),), seconds=(), number=1):
    return {
        "cell": cell,
        "round": number,
        "framework": "1.0",
        "work": work or {"precision": "float32"},
        "losses": losses,
        "epochs": [
            {"epoch": epoch, "counted": epoch > 0, "seconds": value}
            for epoch, value in enumerate(seconds)
        ],
    }


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"precision": "float16"}, "precision: float32 in torch round 1, float16 in oneflow"),
        ({"gradient_norm_limit": None}, "gradient_norm_limit: 10.0 in torch round 1, None"),
        ({"hyperparameters": {"mosaic": 0.0}}, "hyperparameters.mosaic: 1.0 in torch"),
        ({"batches_sha1": "ab"}, "batches_sha1: cd in torch"),
        ({"settings": {"seed": 0, "backend": "oneflow", "new": 1}}, "settings.new: absent in"),
    ],
)
def test_every_difference_in_work_is_one_line(change, line):
    work = {
        "precision": "float32",
        "tf32": False,
        "device": "cuda",
        "layout": "channels first",
        "gradient_norm_limit": 10.0,
        "hyperparameters": {"mosaic": 1.0},
        "batches_sha1": "cd",
        "epochs": 300,
        "settings": {"seed": 0, "backend": "torch"},
    }
    found = differences(run(work=work), run("oneflow", {**work, **change}), set())
    assert len(found) == 1 and line in found[0]
    name = line.partition(":")[0]
    assert differences(run(work=work), run("oneflow", {**work, **change}), {name}) == []


def test_loss_gap_reports_the_worst_common_batch():
    gap = loss_gap(run(losses=[[1, 2, 3], [1, 1, 2]]), run(losses=[[1, 2, 3], [1, 1, 2.02]]))
    assert (gap["batches"], gap["worst_batch"], gap["diverged"]) == (2, 2, False)
    assert gap["worst"] == pytest.approx(0.005) and gap["tolerance"] == TOLERANCE
    assert loss_gap(run(losses=[[1, 2, 3]]), run(losses=[[1, 2, 3.1]]))["diverged"]
    assert loss_gap(run(losses=[[1, 2, 3]]), run(losses=[[1, 2, float("nan")]]))["diverged"]
    half = run(losses=[[1, 2, 3.1]], work={"precision": "bfloat16"})
    assert loss_gap(run(), half)["tolerance"] == HALF_TOLERANCE
    assert loss_gap(run(losses=[]), run()) is None


@pytest.mark.parametrize("other", [0.3, float("inf"), None])
@pytest.mark.parametrize("lost", [float("nan"), float("inf"), None])
def test_non_finite_loss_on_either_side_is_divergence(lost, other):
    left, right = [[1, 2, 3], [1, 1, other], [1, 1, 1]], [[1, 2, 3.00001], [1, 1, lost], [1, 1, 1]]
    for reference, candidate in ((left, right), (right, left)):
        gap = loss_gap(run(losses=reference), run("oneflow", losses=candidate))
        assert gap["diverged"] and (gap["worst"], gap["worst_batch"]) == (None, 2)


def test_loss_gap_judges_only_the_first_batches():
    far = [[1, 2, 3]] * 10 + [[9, 9, 9]]
    assert not loss_gap(run(losses=far), run(losses=[[1, 2, 3]] * 11))["diverged"]


def test_epoch_ratios_pair_equal_epochs_without_warm_up():
    reference = [run(seconds=(9, 1, 2)), run(seconds=(9, 4, 5), number=2)]
    candidate = [run(seconds=(90, 2, 6)), run(seconds=(90, 8), number=2)]
    assert epoch_ratios(reference, candidate) == [2.0, 3.0, 2.0]
    for one, times in ((reference[0], (0.0, 4.0)), (candidate[0], (1.0, 3.0))):
        for epoch, seconds in zip(one["epochs"][1:], times, strict=True):
            epoch["processor_seconds"] = seconds
    pairs = epoch_ratios(reference[:1], candidate[:1], "processor_seconds")
    assert pairs == [0.75]  # no ratio to an epoch that took no tick


@pytest.mark.parametrize(
    ("ratios", "rounds", "expected"),
    [
        ([4.8, 5.0, 5.1, 4.9], 2, "slower"),
        ([0.5, 0.55, 0.52, 0.5], 2, "faster"),
        ([1.02, 0.98, 1.01, 1.0], 2, "no difference beyond noise"),
        # All above 1, but their spread reaches it: log 1.02 - (log 1.3 - log 1.02) / 2 < 0.
        ([1.02, 1.3, 1.1, 1.2], 2, "no difference beyond noise"),
        ([5.0, 5.0, 5.0, 5.0], 1, "too few pairs to tell"),
        ([], 0, "too few pairs to tell"),
    ],
)
def test_verdict_needs_a_ratio_beyond_the_spread(ratios, rounds, expected):
    assert verdict(ratios, rounds) == expected
    if expected in ("slower", "faster"):
        inverse = verdict([1 / ratio for ratio in ratios], rounds)
        assert {expected, inverse} == {"slower", "faster"}
