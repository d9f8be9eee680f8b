"""`duet check`: its exit codes, its files, its page in a browser."""

import csv
import logging

import pytest

from duet.utils.data.check import __main__ as command
from duet.utils.errors import UserError
from tests.small import write_small_dataset
from tests.unit.data.check.test_check import EXPECTED, pattern, write_planted


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["check", *map(str, words)])
    try:
        command.main()
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The folder of a report on the planted dataset, and the exit code."""
    folder = tmp_path_factory.mktemp("report")
    data = write_planted(folder / "planted")
    with pytest.MonkeyPatch.context() as patch:
        code = run(patch, "--data", data, "--img", 64, "--out", folder / "out")
    return folder / "out", code


def test_check_exits_1_on_problems_and_0_on_a_clean_dataset(
    reported, monkeypatch, tmp_path, capsys
):
    assert reported[1] == 1
    data = write_small_dataset(tmp_path)
    assert run(monkeypatch, "--data", data, "--out", tmp_path / "out") == 0
    reported_text = capsys.readouterr().out
    assert "problems: none" in reported_text and "train      12         0" in reported_text
    assert f"page: {tmp_path / 'out/check.html'}" in reported_text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data no/such.yaml", "no dataset YAML"),
        ("--data data/trian.yaml", "did you mean train where it has 'trian'"),
        ("--data IMAGE", "not a text file"),
        ("--data DATA --split 1.5", "--split 1.5; accepted: a fraction above 0 and below 1"),
        ("--data DATA --fix data", "--fix data already exists; choose a new folder"),
        ("--data DATA --out x --fix x", "--fix x would be inside x; choose another folder"),
        ("--data DATA --fix runs/check/y", "--fix runs/check/y would be inside runs/check"),
        ("--data DATA --out file", "--out file cannot be created: File exists; choose"),
        ("--data DATA --out /proc/none", "--out /proc/none cannot be created: No such file"),
    ],
)
def test_wrong_check_arguments_fail_before_any_work(monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    data = write_small_dataset(tmp_path / "data")
    image = next(data.parent.rglob("*.jpg"))
    (tmp_path / "file").touch()
    (tmp_path / "data/trian.yaml").write_text("trian: images\nnames: [a]\n")
    with pytest.raises(UserError, match=message):
        run(monkeypatch, *words.replace("DATA", str(data)).replace("IMAGE", str(image)).split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file"]


def test_data_interpretation_is_logged_once(monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    folder = write_small_dataset(tmp_path).parent
    run(monkeypatch, "--data", folder, "--out", tmp_path / "out")
    assert caplog.messages == [f"--data {folder}: is read as the dataset YAML shapes.yaml"]


def test_check_leaves_out_images_beyond_max_pixels(monkeypatch, tmp_path, capsys):
    """Of train, one of 40x30 px is within the limit, and one of 41x30 is not."""
    for split, size_wh in (("train", (40, 30)), ("val", (20, 20))):
        (tmp_path / split).mkdir()
        for seed in range(2):
            pattern(seed, (size_wh[0] + seed, size_wh[1])).save(tmp_path / split / f"{seed}.png")
    data = tmp_path / "d.yaml"
    data.write_text("train: train\nval: val\nnames: [a]\n")
    words = "--data", data, "--img", 64, "--max-pixels", 1200, "--fix", tmp_path / "fixed"
    assert run(monkeypatch, *words, "--out", tmp_path / "out") == 1
    found = (tmp_path / "out/findings.csv").read_text()
    assert (
        "41x30 px are 1,230, over the limit of 1,200" in found
        and found.count("unusable_image") == 1
    )
    reported_text = capsys.readouterr().out
    assert f"train with --data {tmp_path / 'fixed/d.yaml'} --max-pixels 1200\n" in reported_text
    links = sorted(path.name for path in (tmp_path / "fixed/images").rglob("*.png"))
    assert links == ["0.png", "0.png", "1.png"]


def test_every_finding_is_a_csv_row(reported):
    with open(reported[0] / "findings.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["kind"] for row in rows) == sorted(kind for kind, _, _ in EXPECTED)
    assert {row["problem"] for row in rows if row["kind"] in ("leak", "zero_area")} == {"yes"}
    assert {row["problem"] for row in rows if row["kind"] in ("turned", "alike")} == {"no"}


def test_foreign_names_are_neither_formulas_nor_markup(monkeypatch, tmp_path, capsys):
    for split, seed in (("train", 1), ("val", 2)):
        (tmp_path / split).mkdir()
        pattern(seed).save(tmp_path / split / "a\x1b[2J<script>alert(1)<script>.jpg")
    data = tmp_path / "d.yaml"
    data.write_text("train: train\nval: val\nnames: ['=1+1', '=1+1 ', \"\\e[2J<b>\"]\n")
    assert run(monkeypatch, "--data", data, "--out", tmp_path / "out") == 1
    texts = [capsys.readouterr().out]
    texts += [(tmp_path / "out" / name).read_text() for name in ("check.html", "findings.csv")]
    assert all(line.isprintable() for text in texts for line in text.split("\n"))
    assert "<script" not in texts[1] and "<b>=" not in texts[1]
    assert not [
        line for line in texts[2].splitlines() for cell in line.split(",") if cell[:1] == "="
    ]
