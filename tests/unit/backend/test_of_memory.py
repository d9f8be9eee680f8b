"""What is looked up once for the tensors of a model is not kept longer than they are."""

import gc
import weakref

import pytest

from duet.backend.updates import OfMemory, float_tensors


def test_the_tensors_of_a_model_that_is_gone_are_not_kept():
    class Value:
        def is_floating_point(self):
            return True

    class Module:
        _buffers, _non_persistent_buffers_set = {}, frozenset()

        def __init__(self):
            self._parameters = {"weight": Value()}

        def modules(self):
            return [self]

    kept = OfMemory(lambda averages, values: (averages, values))
    average, model = Module(), Module()
    averages, values = float_tensors(average)(), float_tensors(model)()
    assert kept(averages, values) is kept(averages, values)
    gone = [weakref.ref(x) for x in (*averages, *values)]
    del averages, values, average, model
    gc.collect()
    assert [x() for x in gone] == [None, None]


def test_a_failure_keeps_nothing_of_other_tensors():
    kept = OfMemory(lambda averages, values: averages[0] / values[0])
    assert kept([2], [1]) == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept([2], [0])
