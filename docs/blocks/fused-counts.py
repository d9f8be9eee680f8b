# Runs on torch and oneflow.
# --8<-- [start:count]
import numpy as np


class Counted(np.ndarray):
    """An array that counts its operations, and what they read and write."""

    operations = numbers = 0

    def __array_ufunc__(self, function, method, *inputs, **options):
        plain = [np.asarray(x) for x in inputs]
        result = getattr(function, method)(*plain, **options)
        Counted.operations += 1
        Counted.numbers += sum(x.size for x in plain) + result.size
        return result.view(Counted)


def ciou(box, target):
    """CIoU (N,) of boxes (4, N) cxcywh: every line is several launches."""
    low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
    low_t, high_t = target[:2] - target[2:] / 2, target[:2] + target[2:] / 2
    shared = np.minimum(high, high_t) - np.maximum(low, low_t)
    shared = np.maximum(shared, 0)
    shared = shared[0] * shared[1]
    union = box[2] * box[3] + target[2] * target[3] - shared
    iou = shared / union
    hull = np.maximum(high, high_t) - np.minimum(low, low_t)
    apart = box[:2] - target[:2]
    far = (apart[0] ** 2 + apart[1] ** 2) / (hull[0] ** 2 + hull[1] ** 2)
    angle = np.arctan(target[2] / target[3]) - np.arctan(box[2] / box[3])
    v = angle**2 * (4 / np.pi**2)
    return iou - (far + v * (v / (v - iou + 1)))


number = 3000
random = np.random.default_rng(0)
pair = random.uniform(10, 90, (2, 4, number))
found = ciou(*pair.view(Counted))
print(f"plain: {Counted.operations} operations", end=", ")
print(f"{Counted.numbers / number:.0f} numbers per box read and written")
print("fused: 1 operation, 9 numbers: 8 coordinates and the result")
# --8<-- [end:count]
plain = Counted.operations, round(Counted.numbers / number)
# --8<-- [start:agree]
from duet import backend

backend.use()
from duet.backend import fused, ops

ours = fused.complete_iou(*(ops.tensor(boxes.T) for boxes in pair))
apart = abs(ops.to_numpy(ours) - np.asarray(found)).max()
print("Duet's function gives the same:", bool(apart < 1e-6))
# --8<-- [end:agree]
# --8<-- [start:upsample]
small = random.normal(size=(1, 16, 20, 20)).astype(np.float32)


def general(x, height, width):
    """Any size: divide to find the source of each output number."""
    rows = np.arange(height) * x.shape[2] // height
    columns = np.arange(width) * x.shape[3] // width
    return x[:, :, rows[:, None], columns]


def doubled(x):
    """Exactly twice: read every number once, write it four times."""
    result = np.empty((*x.shape[:3], 2, x.shape[3], 2), x.dtype)
    result[:] = x[:, :, :, None, :, None]
    return result.reshape(*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])


def scattered(by_output):
    """Backwards from the outputs: each adds to its input, one by one."""
    height, width = by_output.shape[2:]
    found = np.zeros((*by_output.shape[:2], height // 2, width // 2))
    rows, columns = np.arange(height) // 2, np.arange(width) // 2
    np.add.at(found, (..., rows[:, None], columns), by_output)
    return found


def gathered(by_output):
    """Backwards from the inputs: each sums its four outputs."""
    batch, channels, height, width = by_output.shape
    shape = batch, channels, height // 2, 2, width // 2, 2
    return by_output.reshape(shape).sum(axis=(3, 5))


theirs = ops.to_numpy(ops.upsample_nearest_2x(ops.tensor(small)))
both = general(small, 40, 40), doubled(small)
forward = [np.array_equal(x, theirs) for x in both]
back = np.allclose(scattered(theirs), gathered(theirs), atol=1e-5)
print("forward equal to Duet's:", *forward, "- backward equal:", back)
# --8<-- [end:upsample]

values = {
    "operations": plain[0],
    "numbers": plain[1],
    "less": round(plain[1] / 9),
}
