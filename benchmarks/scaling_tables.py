"""The tables of docs/en/scaling.md, as Markdown: `scaling_model.py` before, `scaling.py` after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import scaling_model as scale
from benchmarks.scaling_model import Constants, Link, Network, Traffic

DEVICES = (1, 2, 4, 8, 16, 64, 256, 1024)
A_MACHINE = 8
# Assumed: an A100's NVLink 3, 600 GB/s both ways together (NVIDIA A100 datasheet, 2021), PCIe 4.0
# with 16 lanes, 31.5 GB/s each way (PCI-SIG, 2017), Ethernet of 100 Gbit/s (IEEE 802.3bj, 2014).
# The latencies are round numbers: no source gives one for all machines.
NVLINK, PCIE, ETHERNET = Link(5e-6, 300e9), Link(1e-5, 31.5e9), Link(3e-5, 12.5e9)
IMAGES, IMAGE_SIDE, VALIDATION_IMAGES = 16, 640, 5000
MEGA, GIGA, MILLI = 1e6, 1e9, 1e-3
FITTED = "n"  # whose trainings give the constants; the others are predicted
DISKS = {"200 MB/s": 200 * MEGA, "1 GB/s": GIGA}

Networks = Mapping[str, Network]
Row = Sequence[object]


def table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def traffic(network: Network, devices: int, inside: Link) -> Traffic:
    """Return the traffic of the gradients of an update."""
    return scale.sum_over(scale.gradient_bytes(network), devices, A_MACHINE, inside, ETHERNET)


def bytes_moved(networks: Networks) -> str:
    rows = []
    for name, network in networks.items():
        found = [traffic(network, devices, NVLINK) for devices in DEVICES]
        cells = [f"{x.inside / MEGA:.1f} / {x.between / MEGA:.1f}" for x in found]
        rows.append((name, f"{network.parameters:,}", *cells))
    return table(("devices", "parameters", *DEVICES), rows)


def exchange_times(networks: Networks) -> str:
    rows = []
    for name, network in networks.items():
        pairs = [[traffic(network, n, link).seconds for link in (NVLINK, PCIE)] for n in DEVICES]
        rows.append((name, *(" / ".join(f"{x / MILLI:.1f}" for x in pair) for pair in pairs)))
    return table(("devices", *DEVICES), rows)


def other_traffic(networks: Networks) -> str:
    several, rows = DEVICES[1:], []
    for name, network in networks.items():
        times = [scale.sync_batch_norm_seconds(network, n, A_MACHINE, NVLINK, ETHERNET)
            for n in several]  # fmt: skip
        size = scale.sync_batch_norm_bytes(network) / MEGA
        cells = (f"{seconds / MILLI:.0f}" for seconds in times)
        rows.append((f"--sync-bn, {name}: {size:.2f} MB a batch, ms", *cells))
    short = (scale.short_exchanges_seconds(n, A_MACHINE, NVLINK, ETHERNET) for n in several)
    rows.append(("short exchanges a batch, ms", *(f"{seconds / MILLI:.2f}" for seconds in short)))
    gathered = (scale.validation_bytes(VALIDATION_IMAGES, devices) / MEGA for devices in several)
    cells = (f"{size:.0f}" for size in gathered)
    return table(("devices", *several), [*rows, ("validation of 5,000 images, MB", *cells)])


def memory_of_a_rank(networks: Networks, factor: float) -> str:
    rows = []
    for name, network in networks.items():
        found = scale.memory(network, IMAGES, IMAGE_SIDE, 2, factor)
        parts = (found.trained, found.buckets, found.activations, found.total)
        rows.append((name, *(f"{part / GIGA:.2f}" for part in parts)))
    head = ("GB", "weights, EMA, gradients, momentum", "buckets", "activations", "together")
    return table(head, rows)


def checkpoints(networks: Networks, found: Mapping[str, Any]) -> str:
    disks = {"the disk here": disk_bandwidth(found), **DISKS}
    rows = []
    for name, network in networks.items():
        size = scale.checkpoint_bytes(network)
        cells = (f"{saving_seconds(size, found, rate):.2f}" for rate in disks.values())
        rows.append((name, f"{size / MEGA:.1f}", *cells))
    return table(("", "MB", *(f"s on {disk}" for disk in disks)), rows)


def largest_checkpoint(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return max(found["checkpoints"], key=lambda saved: saved["bytes"])


def disk_bandwidth(found: Mapping[str, Any]) -> float:
    """Return the bytes per second that reach the disk."""
    largest = largest_checkpoint(found)
    return largest["bytes"] / largest["disk_seconds"]


def saving_seconds(size: int, found: Mapping[str, Any], rate: float) -> float:
    """Return the time to put a checkpoint together, as fast as here, and to write it to a disk."""
    largest = largest_checkpoint(found)
    together = (largest["seconds"] - largest["disk_seconds"]) / largest["bytes"]
    return size * (together + 1 / rate)


def comparison(networks: Networks, constants: Mapping[str, Any]) -> str:
    """Return predictions and measurements, by backend; fitted values are left out."""
    rows = [row for name, found in constants.items() for row in compare(networks, name, found)]
    return table(("", "predicted", "measured", "error of the prediction"), rows)


def compare(networks: Networks, backend: str, found: Mapping[str, Any]) -> Iterator[Row]:
    constants = fitted(networks, found)
    alone = {
        (run["model"], run["images"]): run["seconds"]
        for run in found["trainings"]
        if run["ranks"] == 1
    }
    for run in found["trainings"]:
        case = f"{backend}, {run['model']}, {run['ranks']} x {run['images']} x {run['img']} px"
        network = networks[run["model"]]
        if run["model"] != FITTED:
            yield compare_memory(case, network, run, constants)
        if run["ranks"] > 1:
            seconds = alone[run["model"], run["images"]]
            yield from compare_exchange(case, network, run, constants.link, seconds)
    for saved in found["checkpoints"]:
        size = scale.checkpoint_bytes(networks[saved["model"]])
        case = f"{backend}, {saved['model']}"
        yield beside(f"{case}: checkpoint, MB", size, saved["bytes"], MEGA)
        if saved != largest_checkpoint(found):
            seconds = saving_seconds(size, found, disk_bandwidth(found))
            yield beside(f"{case}: to save it, s", seconds, saved["seconds"], 1)


def fitted(networks: Networks, found: Mapping[str, Any]) -> Constants:
    runs = [run for run in found["trainings"] if run["model"] == FITTED]
    return scale.fit(networks[FITTED], runs)


def compare_memory(
    case: str, network: Network, run: Mapping[str, Any], constants: Constants
) -> Row:
    ranks, factor = run["ranks"], constants.activation_factor
    predicted = scale.memory(network, run["images"], run["img"], ranks, factor).total
    predicted += constants.process + (constants.joined if ranks > 1 else 0)
    return beside(f"{case}: memory of a rank, MB", predicted, run["memory"], MEGA)


def compare_exchange(
    case: str, network: Network, run: Mapping[str, Any], link: Link, alone: float
) -> Iterator[Row]:
    """Yield bytes, a sum of a size that was not fitted, and the step without overlap."""
    ranks, size = run["ranks"], scale.gradient_bytes(network)
    sent = scale.ring_bytes(size, ranks)
    yield beside(f"{case}: sent by a rank a step, MB", sent, run["exchanged"], MEGA)
    middle = run["sums"][-2]
    seconds = scale.ring_seconds(middle["bytes"], ranks, link)
    name = f"{case}: sum of {middle['bytes'] / MEGA:.1f} MB, ms"
    yield beside(name, seconds, middle["seconds"], MILLI)
    seconds = alone + scale.ring_seconds(size, ranks, link)
    yield beside(f"{case}: step, s", seconds, run["seconds"], 1)


def beside(text: str, predicted: float, measured: float, unit: float) -> Row:
    error = f"{100 * (predicted / measured - 1):+.1f} %" if measured else "not measured"
    return (text, f"{predicted / unit:.4g}", f"{measured / unit:.4g}", error)
