"""The table and the plot of val.py's study."""

import csv

import cv2

from utils.report.plots.study import StudyRow, plot_study, study_sizes, write_study


def test_sizes_are_the_public_ones_rounded_up_to_the_stride():
    assert study_sizes(32) == list(range(256, 1537, 128))
    assert study_sizes(128) == study_sizes(32)
    assert study_sizes(192) == [384, 576, 768, 960, 1152, 1344, 1536]


def test_the_table_has_a_row_for_each_model_and_size(tmp_path):
    rows = [
        StudyRow(weights, size, {"mAP_0.5": size / 1000, "mAP_0.5:0.95": size / 2000}, size / 10)
        for weights in ("a.pt", "猫.pt")
        for size in (256, 384)
    ]
    assert rows[0].line() == "a.pt  256 px  mAP_0.5 0.2560  mAP_0.5:0.95 0.1280  25.6 ms per image"
    write_study(rows, tmp_path)
    with open(tmp_path / "study.csv", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert table[0] == ["weights", "image_size", "mAP_0.5", "mAP_0.5:0.95", "ms_per_image"]
    assert table[1] == ["a.pt", "256", "0.256", "0.128", "25.6"]
    assert [row[:2] for row in table[1:]] == [
        ["a.pt", "256"], ["a.pt", "384"], ["猫.pt", "256"], ["猫.pt", "384"],
    ]  # fmt: skip
    plot_study(rows, tmp_path)
    assert cv2.imread(str(tmp_path / "study.png")).std() > 0
