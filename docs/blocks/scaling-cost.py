# --8<-- [start:page]
# Runs without a framework.
from benchmarks.ring import Link, ring_bytes, ring_seconds

parameters = 7_235_389  # YOLOv5s, 80 classes
gradients = 4 * parameters  # bytes of float32
links = {
    "Ethernet, 10 Gbit/s": Link(latency=30e-6, bandwidth=1.25e9),
    "Ethernet, 100 Gbit/s": Link(latency=30e-6, bandwidth=12.5e9),
    "PCIe 4.0 x 16": Link(latency=10e-6, bandwidth=31.5e9),
}
for name, link in links.items():
    for devices in (2, 8):
        sent = ring_bytes(gradients, devices) / 1e6
        milliseconds = 1000 * ring_seconds(gradients, devices, link)
        print(
            f"{name:22}{devices} devices: {sent:5.1f} MB, {milliseconds:5.1f} ms per update"
        )
# --8<-- [end:page]
