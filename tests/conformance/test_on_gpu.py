"""Operations keep their promises on the first GPU, or where there is none, on the emulated one.

As a program, for a process of its own: prints what each check that fails says, and at last how
many there were.
"""

import traceback
from contextlib import nullcontext

import pytest

from duet import backend

backend.use()  # before the checks, some of which derive classes from the framework's

from tests.conformance.judging import Backend, Overlay, all_checks  # noqa: E402
from tests.environments import python  # noqa: E402

DEVICE = "cuda:0"
JUDGED = ("ops.", "Tensor.", "autograd.", "optim.ema_update_", "fused.complete_iou")
ELSEWHERE = {
    "refuses_other_dtypes_and_absent_devices": "is about the default device",
    "the_processor_is_called_cpu": "is about the CPU",
    "column_and_row_of_each_cell": "names the CPU",
    "take_refuses_an_index_out_of_range": "a GPU is not asked for numbers",
    "refuses_rows_and_values_that_do_not_fit": "a GPU is not asked for numbers",
    "half_precision_rows_keep_their_dtype_and_the_column_is_float32": "autocasts on the CPU",
    "computes_without_the_autocast_of_the_caller": "autocasts on the CPU",
    "refuses_rows_out_of_range": "a GPU is not asked for numbers",
    "changes_the_module_that_owns_the_tensors": "its module is on the CPU",
    "restores_the_module_that_owns_the_tensors": "its module is on the CPU",
    "gradients_refuses_what_has_none": "its second tensor is on the CPU",
    "is_none_before_and_accumulates_after": "its module is on the CPU",
}
NOT_EMULATED = {
    "adds_a_bias_to_products_with_rows": "PyTorch changes the shape of a product of one row later"
}


def backend_on_gpu() -> Backend:
    """Return the backend of which arrays go to the GPU, unless a check names a device."""
    found = Backend()
    tensor, variable = backend.ops.tensor, backend.autograd.variable
    found.ops = Overlay(found.ops, "tensor", lambda x, device=DEVICE: tensor(x, device))
    found.autograd = Overlay(
        found.autograd, "variable", lambda x, device=DEVICE: variable(x, device)
    )
    return found


def main() -> None:
    from tests.emulated.gpu import emulated_gpu

    is_real = backend.device.supports("cuda")
    left_out = {*ELSEWHERE, *(() if is_real else NOT_EMULATED)}
    checks = [check for check in all_checks() if check.name.startswith(JUDGED)]
    checks = [check for check in checks if check.label not in left_out]
    with nullcontext() if is_real else emulated_gpu():
        backend.device.compute_exactly(DEVICE)
        judged = backend_on_gpu()
        for check in checks:
            try:
                check.run(judged)
                backend.device.synchronize(DEVICE)
            except Exception:
                print(f"{check.name}, {check.label}: {traceback.format_exc(limit=-3)}")
    print(len(checks))


@pytest.mark.skipif(backend.use() != "torch", reason="PyTorch's GPU is emulated")
def test_operations_keep_their_promises_on_a_gpu() -> None:
    done = python("-m", "tests.conformance.test_on_gpu")
    assert done.returncode == 0, done.stderr
    *failed, number = done.stdout.splitlines()
    assert not failed, done.stdout
    assert int(number) > 100


if __name__ == "__main__":
    main()
