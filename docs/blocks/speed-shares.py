# Runs without a framework.
# --8<-- [start:page]
from duet.utils.json_files import read_json
from duet.utils.project import PROJECT
from duet.utils.report.stage_timer import STAGES

measured = read_json(PROJECT / "docs" / "stage-times.json")["seconds"]
print("share of the epoch; how many times faster it is if the stage takes no time")
for stage in STAGES:
    shares = [seconds[stage] / seconds["epoch"] for seconds in measured.values()]
    print(f"{stage:12}", *(f"{share:9.1%} {1 / (1 - share):5.2f}x" for share in shares))
# --8<-- [end:page]

torch = measured["torch"]
values = {
    "torch": f"{torch['epoch']:.1f}",
    "oneflow": f"{measured['oneflow']['epoch']:.1f}",
    "layers": f"{(torch['forward'] + torch['backward']) / torch['epoch']:.0%}",
    "oneflow_loss": f"{measured['oneflow']['loss'] / measured['oneflow']['epoch']:.1%}",
    "optimizer": f"{torch['optimizer'] / torch['epoch']:.1%}",
}
