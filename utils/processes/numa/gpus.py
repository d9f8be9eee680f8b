"""The NUMA node of a GPU, before a framework is imported. After: `binding`.

The loader's workers start before the framework and inherit their parent's binding, so the node must
be known before. CUDA's driver numbers the GPUs as both frameworks do, by CUDA_VISIBLE_DEVICES and
CUDA_DEVICE_ORDER, and gives the PCI address of each; sysfs has the node of an address. Asking the
driver makes no context and takes no memory of a GPU.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

DRIVER_LIBRARY = "libcuda.so.1"
PCI_ADDRESS_BYTES = 32


class UnknownNode(Exception):
    """The node of a device is not known; the text says why."""


def gpu_node(index: int, system: Path) -> int:
    """Return the number of a GPU's node.

    Args:
        index: as in "cuda:0".
        system: the folder in which sysfs is mounted.

    Raises:
        UnknownNode: no such GPU, no driver, or the system does not say.
    """
    driver = load_driver()
    if driver is None:
        raise UnknownNode(f"{DRIVER_LIBRARY} cannot be loaded; it tells the node of a GPU")
    path = system / "bus" / "pci" / "devices" / pci_address(driver, index) / "numa_node"
    try:
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise UnknownNode(f"the node of GPU {index} cannot be read: {error}") from error
    if node < 0:
        raise UnknownNode(f"the system does not say on which node GPU {index} is: {path}")
    return node


def load_driver() -> Any:
    """Load and initialize CUDA's driver library; None if there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def pci_address(driver: Any, index: int) -> str:
    """Return a GPU's name in /sys/bus/pci/devices, such as 0000:3b:00.0; UnknownNode if none."""
    device, text = ctypes.c_int(), ctypes.create_string_buffer(PCI_ADDRESS_BYTES)
    if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
        raise UnknownNode(f"this process sees no GPU {index}")
    if driver.cuDeviceGetPCIBusId(text, PCI_ADDRESS_BYTES, device) != 0:
        raise UnknownNode(f"the driver does not say where GPU {index} is")
    domain, _, rest = text.value.decode("ascii").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"  # some drivers write the domain with eight digits
