"""A dataset packed into record files trains as its loose files do."""

from duet.utils.data.records import __main__ as records
from tests.equal_runs import rows
from tests.train.short_runs import short_flags, start


def test_an_epoch_from_records_has_the_losses_and_metrics_of_one_from_files(tmp_path, monkeypatch):
    flags = [*short_flags(tmp_path), "--epochs", "1"]
    packed = tmp_path / "packed"
    monkeypatch.setattr("sys.argv", ["records", "pack", "--data", flags[1], "--out", str(packed)])
    records.main()
    files = start([*flags, "--name", "files"])
    found = start([*flags, "--name", "records", "--data", str(packed / "shapes.yaml")])
    assert float(rows(files)[0]["train/box_loss"]) > 0
    assert rows(found) == rows(files)
