# Runs on torch and oneflow.
from duet import backend

backend.use()

from tests.conformance.judging import Backend, all_checks


def run_checks(name, candidate=None):
    """Run the checks of a name on the backend in use or, in its place, on a candidate."""
    tested = Backend()
    if candidate is not None:
        tested = tested.replaced(*name.split("."), candidate(tested))
    for check in all_checks():
        if check.name != name:
            continue
        try:
            check.run(tested)
            print(f"  passes  {check.label}")
        except AssertionError as error:
            print(
                f"  fails   {check.label}: {str(error).strip().splitlines()[0]}"
            )


def without_keepdim(b):
    return lambda x, dim=None, keepdim=False: b.ops.mean(x, dim)


def by_a_sum(b):
    def mean(x, dim=None, keepdim=False):
        count = x.numel() if dim is None else x.shape[dim]
        return b.ops.sum(x, dim, keepdim) / float(max(count, 1))

    return mean


def detached(b):
    return lambda x, dim=None, keepdim=False: b.ops.mean(
        x, dim, keepdim
    ).detach()


print("ops.mean as it is")
run_checks("ops.mean")
for candidate in (without_keepdim, by_a_sum, detached):
    print(candidate.__name__)
    run_checks("ops.mean", candidate)
