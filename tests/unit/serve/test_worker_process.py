"""A worker's process through its deaths, with a stub in place of a model."""

import asyncio
import json
import os
import tempfile
from dataclasses import replace

import pytest

from tests.unit.serve.stub_worker import WINDOW
from utils.errors import UserError, WorkerError
from utils.serve import worker_life, worker_process
from utils.serve.messages import BadImageError, Query, WorkerLostError, WorkerSettings
from utils.serve.worker_life import LARGE_WINDOW
from utils.serve.worker_process import WorkerProcess


@pytest.fixture(autouse=True)
def stub(monkeypatch, tmp_path):
    monkeypatch.setattr(worker_life, "MODULE", "tests.unit.serve.stub_worker")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def settings(tmp_path):
    return WorkerSettings("stub", str(tmp_path / "stub.onnx"))


def with_worker(settings, work):
    """Return what a coroutine function of a worker returns; the worker is closed after it."""

    async def run():
        worker = WorkerProcess(settings)
        await worker.start()
        try:
            return await asyncio.wait_for(work(worker), 20)
        finally:
            await worker.close()

    return asyncio.run(run())


async def ask(worker, word, query=None, answer="json", is_large=False):
    """Return what the stub tells of a request, or the error that it raises."""
    try:
        found = await worker.detect(word.encode(), query or Query(), answer, is_large)
    except (UserError, WorkerError) as error:
        return error
    return json.loads(found.body)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_request_reaches_the_worker_whole_and_its_answer_comes_back(settings):
    query = Query(conf=0.5, iou=0.25, max_det=7, classes=(2, 1), agnostic=True)

    async def work(worker):
        assert worker.is_ready and worker.model["name"] == "stub"
        assert worker.model["weights"] == "stub.onnx"
        return await worker.detect(b"image", query, "png")

    found = with_worker(settings, work)
    told = json.loads(found.body)
    assert told["word"] == "image" and told["asked"]["answer"] == "png"
    assert told["asked"]["query"] == {
        "conf": 0.5, "iou": 0.25, "max_det": 7, "classes": [2, 1], "agnostic": True
    }  # fmt: skip
    assert (found.count, found.milliseconds) == (2, {"total": 1.5})


@pytest.mark.parametrize(
    ("word", "kind"), [("bad", BadImageError), ("class", UserError), ("fail", WorkerError)]
)
def test_what_the_worker_refuses_is_an_error_of_its_kind_and_it_goes_on(settings, word, kind):
    async def work(worker):
        return [await ask(worker, each) for each in (word, "image")], worker.restarts

    (refused, answered), restarts = with_worker(settings, work)
    assert type(refused) is kind and answered["word"] == "image" and restarts == 0


def test_the_worker_gets_no_more_requests_than_it_has_room_for(settings):
    async def work(worker):
        asked = [asyncio.create_task(ask(worker, f"slow {n}")) for n in range(3 * WINDOW)]
        await asyncio.sleep(0)
        waiting = worker.waiting
        return await asyncio.gather(*asked), waiting, worker.waiting

    found, during, after = with_worker(settings, work)
    assert (during, after) == (3 * WINDOW, 0)
    assert {one["word"] for one in found} == {f"slow {n}" for n in range(3 * WINDOW)}
    assert max(one["most"] for one in found) == WINDOW


def test_large_images_leave_room_for_small_ones(settings):
    async def work(worker):
        large = [asyncio.create_task(ask(worker, "slow", is_large=True)) for _ in range(3 * WINDOW)]
        await asyncio.sleep(0)
        small = await ask(worker, "small")
        finished = sum(task.done() for task in large)
        return small, finished, await asyncio.gather(*large)

    small, finished, large = with_worker(settings, work)
    assert small["word"] == "small" and finished == 0
    assert max(one["most"] for one in [small, *large]) == LARGE_WINDOW + 1
    assert all(one["asked"]["is_large"] for one in large) and not small["asked"]["is_large"]


def test_requests_of_a_worker_that_dies_are_answered_by_the_next(settings, tmp_path):
    deadly = f"die unless {tmp_path / 'died'}"

    async def work(worker):
        before = worker.model["pid"]
        found = await asyncio.gather(*(ask(worker, f"slow {n}") for n in range(9)),
                                     ask(worker, deadly))  # fmt: skip
        return found, before, worker.model["pid"], worker.restarts, worker.is_ready

    found, before, after, restarts, is_ready = with_worker(settings, work)
    assert {one["word"] for one in found} == {deadly, *(f"slow {n}" for n in range(9))}
    assert before != after and restarts == 1 and is_ready
    assert not is_alive(before) and not is_alive(after)


def test_an_image_that_kills_each_worker_takes_no_other_with_it(settings):
    async def work(worker):
        words = ["slow 1", "slow 2", "die", *(f"slow {n}" for n in range(3, 9))]
        found = await asyncio.gather(*(ask(worker, word) for word in words))
        return dict(zip(words, found, strict=True)), worker.restarts

    found, restarts = with_worker(settings, work)
    lost = found.pop("die")
    assert type(lost) is WorkerLostError and "another image" in str(lost)
    assert [one["word"] for one in found.values()] == list(found) and restarts == 2


def test_an_image_that_kills_after_its_client_has_gone_takes_no_other_with_it(settings):
    async def work(worker):
        killer = asyncio.create_task(ask(worker, "die late"))
        await asyncio.sleep(0.3)
        slow = asyncio.create_task(ask(worker, "slow"))  # it is suspected too
        while not worker.restarts:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.25)
        killer.cancel()  # it is in the second life, alone
        return await slow, worker.restarts

    found, restarts = with_worker(settings, work)
    assert found["word"] == "slow" and restarts == 2


def test_two_images_that_kill_are_both_given_up_and_the_rest_is_answered(settings, monkeypatch):
    monkeypatch.setattr(worker_process, "LONGEST_PAUSE", 0.1)

    async def work(worker):
        words = ["die", "slow 1", "die", "slow 2"]
        return await asyncio.gather(*(ask(worker, word) for word in words))

    first, one, second, two = with_worker(settings, work)
    assert type(first) is type(second) is WorkerLostError
    assert (one["word"], two["word"]) == ("slow 1", "slow 2")


def test_a_worker_that_hangs_is_killed_and_replaced(settings):
    async def work(worker):
        asked = asyncio.create_task(ask(worker, "hang"))
        with pytest.raises(asyncio.TimeoutError):  # the client gives up long before
            await asyncio.wait_for(asyncio.shield(asked), 0.05)
        asked.cancel()
        while not worker.restarts:
            await asyncio.sleep(0.02)
        return await ask(worker, "image")

    found = with_worker(replace(settings, timeout=0.3), work)
    assert found["word"] == "image"


def test_a_worker_that_hangs_twice_on_an_image_gives_it_up(settings):
    found = with_worker(replace(settings, timeout=0.2), lambda worker: ask(worker, "hang"))
    assert type(found) is WorkerLostError


def test_what_nobody_waits_for_is_cancelled_in_the_worker_and_leaves_its_place(settings):
    async def work(worker):
        asked = [asyncio.create_task(ask(worker, "wait")) for _ in range(WINDOW)]
        await asyncio.sleep(0.05)
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
        return await ask(worker, "image"), worker.restarts

    found, restarts = with_worker(settings, work)
    assert sorted(found["cancelled"]) == list(range(WINDOW)) and restarts == 0


def test_a_worker_that_answers_others_does_not_hang(settings):
    async def work(worker):
        asked = asyncio.create_task(ask(worker, "wait"))
        for _ in range(8):
            await ask(worker, "slow")  # 0.2 s each
        asked.cancel()
        return worker.restarts

    assert with_worker(replace(settings, timeout=0.6), work) == 0


@pytest.mark.parametrize("word", ["nonsense", "stranger", "no number"])
def test_a_worker_that_sends_nonsense_is_replaced(settings, word):
    async def work(worker):
        found = await ask(worker, word)
        return found, await ask(worker, "image"), worker.restarts

    lost, answered, restarts = with_worker(settings, work)
    assert type(lost) is WorkerLostError and answered["word"] == "image" and restarts == 2


def test_a_request_that_nobody_waits_for_keeps_its_place_until_it_is_answered(settings):
    async def work(worker):
        asked = [asyncio.create_task(ask(worker, f"slow {n}")) for n in range(2 * WINDOW)]
        await asyncio.sleep(0.05)
        for task in asked[:WINDOW]:
            task.cancel()
        await asyncio.wait(asked)
        return [task.result()["word"] for task in asked[WINDOW:]], await ask(worker, "image")

    found, last = with_worker(settings, work)
    assert found == [f"slow {n}" for n in range(WINDOW, 2 * WINDOW)]
    assert last["most"] == WINDOW


def test_a_worker_that_does_not_start_again_answers_with_an_error(settings, tmp_path):
    async def work(worker):
        (tmp_path / "stub.onnx").write_text("refuse")
        found = await asyncio.gather(ask(worker, "die"), ask(worker, "slow"))
        is_ready = worker.is_ready
        (tmp_path / "stub.onnx").unlink()
        return found, is_ready, await ask(worker, "image"), worker.is_ready

    found, was_ready, answered, is_ready = with_worker(settings, work)
    assert [type(one) for one in found] == [WorkerLostError] * 2 and not was_ready
    assert answered["word"] == "image" and is_ready


def test_requests_at_the_end_are_given_up(settings):
    async def run():
        worker = WorkerProcess(settings)
        await worker.start()
        asked = [asyncio.create_task(ask(worker, "hang")) for _ in range(2 * WINDOW)]
        await asyncio.sleep(0.05)
        await worker.close()
        return await asyncio.gather(*asked), worker.model["pid"], worker.is_ready

    found, pid, is_ready = asyncio.run(run())
    assert [type(one) for one in found] == [WorkerLostError] * 2 * WINDOW
    assert not is_alive(pid) and not is_ready


@pytest.mark.parametrize(
    ("does", "error", "text"),
    [
        ("refuse", UserError, "--weights: no such model"),
        ("die", WorkerError, "ended before it was ready"),
        ("sleep", WorkerError, "was not ready in time"),
    ],
)
def test_a_worker_that_cannot_start_says_why(settings, tmp_path, does, error, text):
    (tmp_path / "stub.onnx").write_text(does)
    settings = replace(settings, start_timeout=0.5 if does == "sleep" else 20)

    async def work(worker):
        raise AssertionError("it has started")

    with pytest.raises(error, match=text):
        with_worker(settings, work)


def test_a_start_that_is_given_up_leaves_no_process(settings, tmp_path):
    (tmp_path / "stub.onnx").write_text("sleep")

    async def run():
        worker = WorkerProcess(settings)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(worker.start(), 0.3)
        await worker.close()
        await WorkerProcess(settings).close()

    asyncio.run(run())
    assert not (tmp_path / "made.onnx").exists()


def test_weights_are_converted_once_and_the_file_goes_at_the_end(settings, tmp_path):
    settings = replace(settings, weights=str(tmp_path / "best.pt"))

    async def work(worker):
        does = [worker.model["does"]]
        (folder,) = tmp_path.glob("duet-serve-*")
        await ask(worker, "die")
        return [*does, worker.model["does"]], worker.model["weights"], folder.exists()

    does, weights, existed = with_worker(settings, work)
    assert does == ["converted"] * 2 and weights == "best.pt" and existed
    assert not list(tmp_path.glob("duet-serve-*"))
