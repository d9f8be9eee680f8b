# --8<-- [start:page]
# Runs without a framework.
parameters = 7_235_389  # YOLOv5s, 80 classes
gradients = 4 * parameters  # bytes of float32
links = {  # seconds per message, bytes per second
    "Ethernet, 10 Gbit/s": (30e-6, 1.25e9),
    "Ethernet, 100 Gbit/s": (30e-6, 12.5e9),
    "PCIe 4.0 x 16": (10e-6, 31.5e9),
}
for name, (latency, bandwidth) in links.items():
    for devices in (2, 8):
        sent = 2 * (devices - 1) / devices * gradients
        seconds = 2 * (devices - 1) * latency + sent / bandwidth
        print(
            f"{name:22}{devices} devices: {sent / 1e6:5.1f} MB, {1000 * seconds:5.1f} ms per update"
        )
# --8<-- [end:page]
