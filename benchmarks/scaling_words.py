"""The words of the tables in Chinese, for docs/zh/scaling.md: `scaling_tables.py` before."""

from __future__ import annotations

# Longer phrases first: each is replaced where it stands.
CHINESE = (
    ("weights, EMA, gradients, momentum", "权重、EMA、梯度、动量"),
    ("error of the prediction", "预测误差"),
    ("validation of 5,000 images, MB", "验证 5,000 张图像，MB"),
    ("short exchanges a batch, ms", "每个批次的短消息，毫秒"),
    (" MB a batch, ms", " MB 每批次，毫秒"),
    (": sent by a rank a step, MB", "：每个 rank 每步发送，MB"),
    (": memory of a rank, MB", "：每个 rank 的内存，MB"),
    (": checkpoint, MB", "：检查点，MB"),
    (": to save it, s", "：保存检查点，秒"),
    (": step, s", "：训练步，秒"),
    (": sum of ", "：求和 "),
    (" MB, ms", " MB，毫秒"),
    ("s on the disk here", "本机磁盘，秒"),
    ("s on 200 MB/s", "200 MB/s，秒"),
    ("s on 1 GB/s", "1 GB/s，秒"),
    ("not measured", "未测量"),
    ("parameters", "参数数"),
    ("activations", "激活值"),
    ("predicted", "预测"),
    ("measured", "实测"),
    ("together", "合计"),
    ("devices", "设备数"),
    ("buckets", "桶"),
    (" px:", " 像素："),
    (" px：", " 像素："),
)


def in_chinese(table: str) -> str:
    """Return a table with its words in Chinese; numbers and names stay."""
    for english, chinese in CHINESE:
        table = table.replace(english, chinese)
    return table
