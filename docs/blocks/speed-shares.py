# Runs on torch and oneflow.
# Numbers differ from run to run.
# --8<-- [start:page]
import csv

with open("runs/train/exp/results.csv", encoding="utf-8") as file:
    epoch = list(csv.DictReader(file))[-1]
seconds = {
    name.removeprefix("seconds/"): float(value)
    for name, value in epoch.items()
    if name.startswith("seconds/")
}
whole = seconds.pop("epoch")
print("stage        share  limit")
for stage, spent in seconds.items():
    print(f"{stage:11}{spent / whole:7.1%}{1 / (1 - spent / whole):6.2f}x")
# --8<-- [end:page]

from duet.utils.files.json_files import read_json
from duet.utils.project import PROJECT

measured = read_json(PROJECT / "docs" / "stage-times.json")["seconds"]
torch, oneflow = measured["torch"], measured["oneflow"]
values = {
    "torch": f"{torch['epoch']:.1f}",
    "oneflow": f"{oneflow['epoch']:.1f}",
    "layers": f"{(torch['forward'] + torch['backward']) / torch['epoch']:.0%}",
    "oneflow_loss": f"{oneflow['loss'] / oneflow['epoch']:.1%}",
    "optimizer": f"{torch['optimizer'] / torch['epoch']:.1%}",
}
