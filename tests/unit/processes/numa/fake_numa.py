"""Machines that are not there: sysfs trees with NUMA nodes, and a driver that knows GPUs."""

from pathlib import Path


def write_nodes(system: Path, cpulists: dict[int, str], online: str = "", memory: str = "") -> None:
    """Write the node folders of sysfs; by default all nodes are online and have memory."""
    folder = system / "devices" / "system" / "node"
    for number, cores in cpulists.items():
        (folder / f"node{number}").mkdir(parents=True)
        (folder / f"node{number}" / "cpulist").write_text(cores + "\n")
    everything = ",".join(map(str, cpulists))
    (folder / "online").write_text((online or everything) + "\n")
    (folder / "has_memory").write_text((memory or everything) + "\n")


def write_gpu(system: Path, address: str, node: int) -> None:
    """Write a device of the PCI bus."""
    folder = system / "bus" / "pci" / "devices" / address
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{node}\n")


class FakeDriver:
    """The part of CUDA's driver that says where GPUs are; an error code where there is none."""

    def __init__(self, *addresses: bytes):
        self.addresses = addresses

    def cuInit(self, flags):
        return 0 if self.addresses else 100  # CUDA_ERROR_NO_DEVICE

    def cuDeviceGet(self, device, ordinal):
        if ordinal >= len(self.addresses):
            return 101  # CUDA_ERROR_INVALID_DEVICE
        device._obj.value = ordinal
        return 0

    def cuDeviceGetPCIBusId(self, text, length, device):
        assert length > len(self.addresses[device.value])
        text.value = self.addresses[device.value]
        return 0
