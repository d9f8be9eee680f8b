"""utils/state/resume.py: which state --resume means, and what may change in the middle of a run."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import TrainConfig, read_train_flags, run_settings
from duet.utils.errors import UserError
from duet.utils.files.yaml_files import write_yaml
from duet.utils.processes.world import ALONE
from duet.utils.state.files import StateFiles
from duet.utils.state.resume import (
    find_resume_point,
    require_same_point,
    resumed_config,
)
from duet.utils.state.run import clean_up
from duet.utils.weights.checkpoint import Checkpoint
from tests.small import RESULT_COLUMNS
from tests.unit.weights.test_checkpoint import HEADER

BEGUN = ["--cfg", "x.yaml", "--epochs", "3", "--freeze", "2", "--batch", "8", "--keep", "5"]

SAMPLES = {"images": 3, "sha256": "5a", "polygons": ""}
PROGRESS_OF_ONE_BATCH = {
    "is_best": False,
    "best_epoch": 0,
    "scores_before_epoch": {"1": [0.25]},
    "finite_updates": 1,
    "watch": {
        "skipped": 0, "in_a_row": 0, "batches": 1, "lost": 0, "sums": [0.5, 0.25, 0.125],
        "first_losses": [[0.5, 0.25, float("nan")]],
    },
    "seconds": StageTimer().state(),
    "work": {"batches": 1, "sha1": "0e"},
    "loss_names": ["box", "objectness", "classification"],
    "columns": list(RESULT_COLUMNS),
    "results": [["0.5"] * len(RESULT_COLUMNS)],
    "data": {"train": SAMPLES, "val": SAMPLES},
    "world_size": 1,
}  # fmt: skip


def state(number=1, epoch=0, flags=BEGUN):
    config = TrainConfig(**read_train_flags(flags)[0])
    header = dataclasses.replace(
        HEADER,
        batch_number=number,
        epoch=epoch,
        settings=run_settings(config),
        hyperparameters=as_document(read_hyperparameters(DEFAULT_HYPERPARAMETERS)),
        progress=PROGRESS_OF_ONE_BATCH,
    )
    arrays = {"weight": np.full(3, number, np.float32)}
    return Checkpoint(header, arrays, arrays, {})


def write_run(folder, *numbers, time=0, **fields):
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        path = StateFiles(folder, keep=9).save(state(number, **fields), is_best=False)
        os.utime(path, ns=(time, time))


def test_resume_ignores_runs_with_longer_number_suffix(tmp_path):
    for name, folder, time in (("duet-7", "duet-7", 1), ("duet-71", "duet-71", 2)):
        write_run(tmp_path / folder, time, time=time)
        write_yaml(tmp_path / folder / "opt.yaml", {"name": name})
    assert point(tmp_path, "auto", "--name", "duet-7").folder == tmp_path / "duet-7"
    write_run(tmp_path / "duet-72", 3, time=3)
    write_yaml(tmp_path / "duet-72" / "opt.yaml", {"name": "duet-7"})
    assert point(tmp_path, "auto", "--name", "duet-7").folder == tmp_path / "duet-72"
    assert point(tmp_path, "auto", "--name", "duet-72") is None
    (tmp_path / "duet-72" / "opt.yaml").write_bytes(b"[" * 3000)  # what is damaged tells nothing
    assert point(tmp_path, "auto", "--name", "duet-7").folder == tmp_path / "duet-72"


def test_state_outside_a_run_is_refused(tmp_path):
    write_run(tmp_path / "exp", 7)
    (state_file,) = (tmp_path / "exp" / "weights").glob("state-*")
    moved = state_file.rename(tmp_path / state_file.name)
    content, beside = moved.read_bytes(), sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"RUN/weights/state-00000007.*--weights"):
        point(tmp_path, str(moved))
    assert (moved.read_bytes(), sorted(tmp_path.rglob("*"))) == (content, beside)


def point(folder, asked, *flags):
    return find_resume_point(
        *read_train_flags(["--project", str(folder), "--resume", asked, *flags])
    )


def batch_number(found):
    return found.header.batch_number


def test_resume_takes_newest_state_of_newest_run_by_name(tmp_path):
    write_run(tmp_path / "exp", 7, 8, time=1)
    write_run(tmp_path / "exp2", 3, 4, time=3)
    write_run(tmp_path / "exp10", 5, time=2)
    write_run(tmp_path / "experiment", 6, time=9)
    (tmp_path / "exp3").mkdir()  # ended before its first state
    for asked, name in (("auto", ()), ("newest", ("--name", "exp"))):
        found = point(tmp_path, asked, *name)
        assert (found.folder, batch_number(found)) == (tmp_path / "exp2", 4)
        assert batch_number(point(tmp_path, asked, "--name", "experiment")) == 6


def test_bare_resume_takes_the_newest_unfinished_run(tmp_path, caplog):
    write_run(tmp_path / "exp", 7, 8, time=1)
    write_run(tmp_path / "night", 6, time=2)
    write_run(tmp_path / "morning", 5, time=3)
    (tmp_path / "morning" / "work.json").touch()
    caplog.set_level("INFO")
    assert point(tmp_path, "newest").folder == tmp_path / "night"
    assert f"--resume: {tmp_path / 'night'} is the newest unfinished run" in caplog.text


def test_resuming_an_older_state_reports_what_it_replaces(tmp_path, caplog):
    write_run(tmp_path / "exp", 7, 8, 9)
    weights = tmp_path / "exp" / "weights"
    assert batch_number(point(tmp_path, str(weights / "state-00000009.safetensors"))) == 9
    assert not caplog.records
    older = str(weights / "state-00000007.safetensors")
    assert batch_number(point(tmp_path, older)) == 7
    (record,) = caplog.records
    assert record.message == (
        f"--resume: {tmp_path / 'exp'} continues from state-00000007.safetensors, which replaces "
        "its later states state-00000008.safetensors, state-00000009.safetensors"
    )


def test_last_weights_serve_when_no_state_is_left(tmp_path):
    write_run(tmp_path / "exp", 8)
    StateFiles(tmp_path / "exp", keep=1).remove_all()
    assert batch_number(point(tmp_path, str(tmp_path / "exp"))) == 8


def test_resume_of_nothing_is_an_error_except_auto(tmp_path):
    assert point(tmp_path / "missing", "auto") is None
    with pytest.raises(UserError, match=f"no run with a state in {tmp_path}; give its folder"):
        point(tmp_path, "newest")
    with pytest.raises(UserError, match="no run with a state in .* named night"):
        point(tmp_path, "newest", "--name", "night")
    with pytest.raises(UserError, match="no states in .*; give the folder of a run"):
        point(tmp_path, str(tmp_path))
    with pytest.raises(UserError, match="--resume '': empty"):  # a new run would cost hours
        point(tmp_path, "")
    for gone in ("gone.safetensors", "newst"):
        with pytest.raises(UserError, match=f"--resume {gone}: no such folder or file"):
            point(tmp_path, gone)


def test_finished_run_cannot_be_resumed(tmp_path):
    write_run(tmp_path / "exp", 9, epoch=3)
    assert not point(tmp_path, "newest").is_finished  # it was killed before its last file
    (tmp_path / "exp" / "work.json").touch()
    assert point(tmp_path, "auto").is_finished
    with pytest.raises(UserError, match="is already finished") as caught:
        point(tmp_path, "newest")
    assert f"with --weights {tmp_path}/exp/weights/last.safetensors" in str(caught.value)


def test_finished_run_resumes_from_an_older_state(tmp_path):
    write_run(tmp_path / "exp", 7, epoch=2)
    write_run(tmp_path / "exp", 9, epoch=3)
    (tmp_path / "exp" / "work.json").touch()
    older, newest = sorted((tmp_path / "exp" / "weights").glob("state-*"))
    assert batch_number(point(tmp_path, str(older))) == 7
    with pytest.raises(UserError, match="is already finished"):
        point(tmp_path, str(newest))


EARLY = [("--patience", "2", "1"), ("--time", "0.25", "0.125")]


@pytest.mark.parametrize(("flag", "value", "smaller"), EARLY)
def test_early_ended_run_resumes_only_with_a_larger_limit(tmp_path, flag, value, smaller):
    settings = state(flags=[*BEGUN, "--epochs", "9", flag, value]).header.settings
    write_header(tmp_path / "exp", settings=settings, epoch=3)
    assert not point(tmp_path, "auto").is_finished
    (tmp_path / "exp" / "work.json").touch()
    assert point(tmp_path, "auto").is_finished
    with pytest.raises(UserError, match="finished; --patience or --time .*: give a larger"):
        point(tmp_path, "newest")
    assert point(tmp_path, "auto", flag, smaller).is_finished
    for larger in ("0", "7"):
        for asked in ("newest", "auto"):
            assert not point(tmp_path, asked, flag, larger).is_finished


@pytest.mark.parametrize("damage", ["cut", "bit", "empty"])
def test_damaged_states_are_skipped_until_none_is_left(tmp_path, damage, caplog):
    write_run(tmp_path / "exp", 7, 8)
    older, newest = sorted((tmp_path / "exp" / "weights").glob("state-*"))

    def harm(path):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes({"cut": content[:-5], "bit": content, "empty": b""}[damage])

    harm(newest)
    assert batch_number(point(tmp_path, "auto")) == 7
    assert f"--resume {newest}: damaged" in caplog.text
    harm(older)
    with pytest.raises(UserError, match="none of its 2 states is usable; start a new run"):
        point(tmp_path, "auto")


def test_weights_without_their_run_are_no_state(tmp_path):
    folder = tmp_path / "exp"
    folder.mkdir()
    header = dataclasses.replace(HEADER, progress={})
    path = StateFiles(folder, 1).save(Checkpoint(header, {}, {}, {}), is_best=False)
    with pytest.raises(UserError, match="not a training state"):
        point(tmp_path, str(path))


def write_header(folder, **parts):
    """Write a state into a run's folder, with these parts of its header changed."""
    header = dataclasses.replace(state().header, **parts)
    folder.mkdir()
    return StateFiles(folder, 1).save(Checkpoint(header, {}, {}, {}), is_best=False)


def without(document, *names):
    return {name: value for name, value in document.items() if name not in names}


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        *(("epochs", lie) for lie in (None, 1.5)),
        *(("freeze", lie) for lie in (None, 1.5, [1], [["a"]])),
        *(("workers", lie) for lie in ("8", 1.5, True)),
        *(("data", None), ("seed", True), ("backend", []), ("of_another_version", 1)),
    ],
)
def test_settings_of_unknown_name_or_type_are_refused(tmp_path, name, lie):
    settings = {**state().header.settings, name: lie}
    path = write_header(tmp_path / "exp", settings=settings)
    with pytest.raises(UserError, match=f"the state has settings that are unknown .*: {name};.*--"):
        point(tmp_path, str(path))


@pytest.mark.parametrize("was", [True, False])
def test_resume_keeps_the_fused_paths_of_an_old_state(tmp_path, was):
    names = ("bbox_iou_optim", "multi_tensor_optimizer")  # off was the default then, not a choice
    settings = {**state().header.settings, **dict.fromkeys(names, was)}
    header = point(tmp_path, str(write_header(tmp_path / "exp", settings=settings))).header
    config, _ = resumed_config(*read_train_flags(["--resume"]), header)
    assert [getattr(config, name) for name in names] == [was, was]


def test_hyperparameters_of_another_version_are_refused(tmp_path):
    stored = state().header.hyperparameters
    for changed, name in (({**stored, "lr9": 0.1}, "lr9"), (without(stored, "lr0"), "lr0")):
        header = dataclasses.replace(state().header, hyperparameters=changed)
        with pytest.raises(UserError, match=f"hyper-parameters: .*'{name}'.*--weights"):
            resumed_config(*read_train_flags(["--resume"]), header)


def test_settings_newer_than_the_state_get_their_default(tmp_path):
    settings = without(state().header.settings, "cosine", "save_steps", "multi_scale")
    settings["time_limit"] = 5.0  # later versions keep it out of the state
    write_header(tmp_path / "exp", settings=settings)
    header = point(tmp_path, "auto").header
    assert header.settings == {
        **state().header.settings,
        "freeze": ["2"],
        "override": [],
        "loggers": [],
    }
    config, _ = resumed_config(*read_train_flags(["--resume"]), header)
    assert (config.cosine, config.save_steps, config.multi_scale) == (False, 0, False)
    assert (config.epochs, config.freeze) == (3, ("2",))  # those that it has are its own
    with pytest.raises(UserError, match="cosine is True instead of False"):
        resumed_config(*read_train_flags(["--resume", "--cos-lr"]), header)


def test_progress_of_a_later_version_is_refused_by_name(tmp_path):
    watch = {**PROGRESS_OF_ONE_BATCH["watch"], "best_epoch": 1}
    path = write_header(tmp_path / "exp", progress={**PROGRESS_OF_ONE_BATCH, "watch": watch})
    with pytest.raises(UserError, match=r"its progress .* \(watch\.best_epoch\); .*--weights"):
        point(tmp_path, str(path))


def test_new_run_in_old_folder_removes_states_not_weights(tmp_path):
    write_run(tmp_path / "exp", 7, 8)
    clean_up(tmp_path / "exp", 2, None)
    names = [path.name for path in (tmp_path / "exp" / "weights").iterdir()]
    assert names == ["last.safetensors"]


def resumed(*flags):
    return resumed_config(*read_train_flags(["--resume", *flags]), state().header)


def test_resumed_settings_accept_only_harmless_overrides():
    words = ("--workers", "3", "--time-limit", "5", "--project", "elsewhere", "--name", "other")
    config, hyp = resumed(*words)
    assert config.name == "exp"  # by which --resume finds it
    assert (config.cfg, config.epochs, config.freeze, config.batch_size) == ("x.yaml", 3, ("2",), 8)
    assert (config.keep, config.save_steps, config.hyp) == (5, 0, DEFAULT_HYPERPARAMETERS)
    assert (config.workers, config.time_limit) == (3, 5)
    assert config.project == Path("elsewhere")
    assert hyp == read_hyperparameters(DEFAULT_HYPERPARAMETERS)


def test_state_cannot_name_code_to_import(caplog):
    begun = state(flags=[*BEGUN, "--loggers", "tensorboard", "os:System"]).header
    config, _ = resumed_config(*read_train_flags(["--resume"]), begun)
    assert config.loggers == ("tensorboard",)
    assert "logger os:System is disabled; add --loggers to use it again" in caplog.text
    config, _ = resumed_config(*read_train_flags(["--resume", "--loggers", "my:Own"]), begun)
    assert config.loggers == ("my:Own",)


def test_result_changing_flags_are_refused_together(tmp_path):
    hyp = tmp_path / "hyp.yaml"
    hyp.write_text(DEFAULT_HYPERPARAMETERS.read_text().replace("lr0: 0.01", "lr0: 0.02"))
    with pytest.raises(UserError) as error:
        resumed("--batch", "16", "--seed", "1", "--epochs", "3", "--hyp", str(hyp))
    for part in ("batch_size is 16 instead of 8", "seed is 1 instead of 0", "in lr0"):
        assert part in str(error.value)
    assert "epochs" not in str(error.value)


def test_ranks_resuming_from_different_states_are_refused():
    another = ALONE._replace(all_gather=lambda own: [own, own[::-1]])
    require_same_point(None, ALONE)
    with pytest.raises(UserError, match=r"different states.* another process .* all machines"):
        require_same_point(None, another)
