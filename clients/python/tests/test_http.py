"""Pauses, repetition, and what an answer says after an attempt without one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import unittest
from collections.abc import Awaitable
from concurrent.futures import Future
from unittest.mock import patch

from aiohttp import web

from hubbub import BlockingClient, Client, Delivery, HubbubError, Options

from .scripted import OPTIONS, Scripted


class Pauses(unittest.TestCase):
    def test_they_grow_have_a_limit_and_a_random_part(self) -> None:
        options = Options(backoff_first=0.1, backoff_max=1.0)
        most = [options.pause(attempt, draw=lambda: 1.0) for attempt in (0, 1, 2, 3, 4, 5_000)]
        self.assertEqual(most, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        self.assertEqual(options.pause(5, draw=lambda: 0.0), 0.0)
        self.assertNotEqual(options.pause(4), options.pause(4))

    def test_they_are_never_shorter_than_the_server_asks_for(self) -> None:
        self.assertEqual(Options().pause(0, 3.0, lambda: 0.0), 3.0)
        self.assertGreater(Options().pause(0, 3.0, lambda: 0.5), 3.0)


class Requests(Scripted):
    async def test_a_queue_message_is_sent_again_with_its_id(self) -> None:
        overloaded = (503, {"code": "overloaded", "retryable": True}, {"retry-after": "0"})
        receipt = (201, {"id": "7", "copies": 1, "sentAt": "t", "duplicate": False}, {})
        url, requests = await self.answering(None, overloaded, (502, "bad gateway", {}), receipt)
        client = await self.client(url)
        self.assertEqual((await client.queue("a b").send("text")).id, "7")
        bodies = [json.loads(body) for _, body in requests]
        self.assertEqual((len(bodies), len({body["messageId"] for body in bodies})), (4, 1))
        self.assertEqual((requests[0][0].raw_path, bodies[0]["sender"]), ("/v1/queues/a%20b/messages", "ada"))

    async def test_a_final_refusal_is_not_repeated(self) -> None:
        url, requests = await self.answering((404, {"code": "unknown_queue", "retryable": False}, {}))
        with self.assertRaises(HubbubError) as raised:
            await (await self.client(url)).queue("q").take()
        self.assertEqual((raised.exception.code, raised.exception.status, len(requests)), ("unknown_queue", 404, 1))

    async def test_the_patience_ends_before_a_pause_that_would_exceed_it(self) -> None:
        too_many = (429, {"code": "too_many_requests", "retryable": True}, {"retry-after": "3600"})
        url, requests = await self.answering(too_many)
        with self.assertRaises(HubbubError) as raised:
            await (await self.client(url)).queue("q").send("text")
        self.assertEqual((raised.exception.code, len(requests)), ("too_many_requests", 1))

    async def test_what_an_attempt_without_an_answer_may_have_done_is_told(self) -> None:
        failed = (412, {"code": "condition_failed", "retryable": False}, {})
        for answers, code in (((failed,), "condition_failed"), ((None, failed), "unconfirmed")):
            url, requests = await self.answering(*answers)
            with self.assertRaises(HubbubError) as raised:
                await (await self.client(url)).keys.put("k", "v", revision=3)
            self.assertEqual(raised.exception.code, code)
            self.assertEqual(requests[-1][0].headers["If-Match"], '"3"')
        gone = (404, {"code": "unknown_key"}, {"content-type": "application/problem+json"})
        seen = (200, None, {"etag": '"4"'})
        for answers, was_there in (((seen, gone, gone), False), ((seen, None, gone), True)):
            url, _ = await self.answering(*answers)
            self.assertIs(await (await self.client(url)).keys.delete("k"), was_there)

    async def test_a_proxys_error_does_not_hide_that_the_server_did_it(self) -> None:
        value, revision = b"old", 1
        puts = 0

        async def answer(request: web.Request) -> web.StreamResponse:
            nonlocal value, revision, puts
            if request.method == "HEAD":
                return web.Response(headers={"etag": f'"{revision}"'})
            if request.method == "GET":
                return web.Response(body=value, headers={"etag": f'"{revision}"'})
            if request.headers["If-Match"] != f'"{revision}"':
                return web.json_response({"code": "condition_failed", "retryable": False}, status=412)
            value, revision, puts = await request.read(), revision + 1, puts + 1
            if puts == 1:
                # Stored; and somebody else is faster than the next attempt.
                value, revision = b"theirs", revision + 1
                return web.Response(status=502, text="bad gateway")
            return web.Response(status=204, headers={"etag": f'"{revision}"'})

        app = web.Application()
        app.router.add_route("*", "/kv/k", answer)
        keys = (await self.client(await self.serve(app))).keys
        for condition in (None, 1):
            value, revision, puts = b"old", 1, 0
            with self.assertRaises(HubbubError) as raised:
                await keys.put("k", "mine", revision=condition)
            self.assertEqual((raised.exception.code, value), ("unconfirmed", b"theirs"))

    async def test_an_acknowledgement_behind_a_proxys_error_may_have_been_its_own(self) -> None:
        message = {"id": "7", "message": "job", "sentAt": "t", "deliveries": 1, "receipt": "r", "leasedUntil": "t"}
        stale = (409, {"code": "stale_receipt", "retryable": False}, {})
        url, _ = await self.answering((200, {"messages": [message]}, {}), (504, "gateway timeout", {}), stale)
        [delivery] = await (await self.client(url)).queue("q").take()
        with self.assertRaises(HubbubError) as raised:
            await delivery.ack()
        self.assertEqual((raised.exception.code, raised.exception.is_open), ("stale_receipt", True))

    async def test_a_change_names_the_revision_it_saw(self) -> None:
        faster = (412, {"code": "condition_failed", "retryable": False}, {})
        url, requests = await self.answering(
            (200, None, {"etag": '"4"'}), faster, (200, None, {"etag": '"6"'}), (204, None, {"etag": '"7"'})
        )
        stored = await (await self.client(url)).keys.put("k", "v")
        self.assertEqual((stored.revision, stored.created), (7, False))
        asked = [(request.method, request.headers.get("If-Match")) for request, _ in requests]
        self.assertEqual(asked, [("HEAD", None), ("PUT", '"4"'), ("HEAD", None), ("PUT", '"6"')])

    async def test_a_key_of_any_text_is_one_path(self) -> None:
        url, requests = await self.answering((201, None, {"etag": '"5"'}))
        keys = (await self.client(url)).keys
        stored = await keys.put("user:1/ä ?#%", "v", revision=0, ttl=0.5)
        self.assertEqual((stored.revision, stored.created), (5, True))
        headers = requests[0][0].headers
        self.assertEqual(requests[0][0].raw_path, "/kv/user%3A1/%C3%A4%20%3F%23%25")
        self.assertEqual((headers["If-None-Match"], headers["Hubbub-TTL"]), ("*", "0.5"))
        with self.assertRaises(HubbubError):
            await keys.put("a/../b", "v")

    async def test_a_handler_that_fails_gives_its_message_back(self) -> None:
        def lease(id: str) -> tuple[int, object, dict[str, str]]:
            message = {"id": id, "message": f"job {id}", "sentAt": "t", "deliveries": 1, "receipt": "r", "leasedUntil": "t"}
            return 200, {"messages": [message]}, {}

        url, requests = await self.answering(lease("1"), (200, {}, {}), lease("2"), (204, None, {}), (403, {"code": "forbidden"}, {}))
        seen: list[str] = []
        errors: list[str] = []

        def handler(delivery: Delivery) -> None:
            seen.append(delivery.message)
            if len(seen) == 1:
                raise ValueError("not now")

        with self.assertRaises(HubbubError):
            await (await self.client(url)).queue("q").poll(handler, on_error=lambda error: errors.append(str(error)))
        self.assertEqual((seen, errors), (["job 1", "job 2"], ["not now"]))
        self.assertEqual([request.path.split("/")[-1] for request, _ in requests][:4], ["lease", "nack", "lease", "ack"])

    async def test_working_through_a_queue_pauses_whatever_the_patience_is(self) -> None:
        overloaded = (503, {"code": "overloaded", "retryable": True}, {"retry-after": "3600"})
        url, requests = await self.answering(overloaded, (403, {"code": "forbidden"}, {}))
        client = await self.client(url)
        slept: list[float] = []

        async def no_sleep(seconds: float) -> None:
            slept.append(seconds)

        with patch.object(client._http, "sleep", no_sleep), self.assertRaises(HubbubError):
            await client.queue("q").poll(lambda _: None)
        self.assertEqual(([seconds >= 3600 for seconds in slept], len(requests)), ([True], 2))


class Closing(Scripted):
    async def test_it_ends_what_waits_and_takes_nothing_more(self) -> None:
        url, _ = await self.answering(None)
        client = Client(url, options=Options(backoff_first=0.01, backoff_max=0.01))
        waiting = [asyncio.create_task(work) for work in (client.queue("q").take(), client.room("r").send("text"))]
        await asyncio.sleep(0)
        await client.close()
        for work in (*waiting, client.keys.get("k"), client.room("r").send("text")):
            with self.assertRaises(HubbubError) as raised:
                await work
            self.assertIn(raised.exception.code, ("closed", "unreachable"))

    async def test_it_ends_threads_that_wait(self) -> None:
        url, requests = await self.answering(None)
        client = await asyncio.to_thread(BlockingClient, url, options=Options(backoff_first=60.0, backoff_max=60.0))
        taking = asyncio.create_task(asyncio.to_thread(lambda: client.queue("q").take()))
        while not requests:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(client.close)
        with self.assertRaises(HubbubError) as raised:
            await taking
        self.assertEqual(raised.exception.code, "closed")

    async def test_it_ends_a_pause(self) -> None:
        url, _ = await self.answering((503, None, {"retry-after": "3600"}))
        client = await self.client(url, Options(patience=7200.0))
        paused = asyncio.Event()
        sleep = client._http.sleep

        async def note(seconds: float) -> None:
            paused.set()
            await sleep(seconds)

        with patch.object(client._http, "sleep", note):
            taking = asyncio.create_task(client.queue("q").take())
            await paused.wait()
            await client.close()
            with self.assertRaises(HubbubError) as raised:
                await asyncio.wait_for(taking, 20)
        self.assertEqual(raised.exception.code, "closed")

    async def test_a_call_that_comes_when_nothing_runs_any_more_is_refused(self) -> None:
        url, _ = await self.answering((404, {"code": "unknown_key"}, {}))

        def close() -> str:
            client = BlockingClient(url)
            called: Future[str] = Future()

            def call() -> None:
                try:
                    client.keys.get("k")
                except HubbubError as error:
                    called.set_result(error.code)

            join = client._loop.thread.join

            def join_and_call() -> None:
                join()
                threading.Thread(target=call, daemon=True).start()
                called.exception(20)

            with patch.object(client._loop.thread, "join", join_and_call):
                client.close()
            return called.result()

        self.assertEqual(await asyncio.to_thread(close), "closed")


class Watching(Scripted):
    async def test_a_wait_that_is_given_up_loses_nothing(self) -> None:
        begin = 'event: watching\ndata: {"epoch":"e","after":4}\n\n'
        url, _ = await self.answering((200, begin, {"content-type": "text/event-stream"}))
        watch = (await self.client(url)).keys.watch()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(watch.__anext__(), 0)
        self.assertEqual((await watch.__anext__()).type, "ready")
        watch.close()

    async def test_a_lost_stream_goes_on_and_another_history_is_one_reset(self) -> None:
        def stream(text: str) -> tuple[int, str, dict[str, str]]:
            return 200, text, {"content-type": "text/event-stream"}

        def begin(epoch: str, after: int) -> str:
            return f'event: watching\ndata: {{"epoch":"{epoch}","after":{after}}}\n\n'

        def put(epoch: str, revision: int) -> str:
            return f'id: {epoch}:{revision}\nevent: put\ndata: {{"key":"a%20b","revision":{revision}}}\n\n'

        reset = (410, {"code": "reset", "retryable": False, "epoch": "f", "oldest": 1, "head": 3}, {})
        url, requests = await self.answering(
            stream(begin("e", 4) + put("e", 5)), stream(begin("e", 5) + ": still here\n\nid: e:9\n\n"), reset,
            stream(begin("f", 3) + put("f", 4)),
        )
        watch = (await self.client(url)).keys.watch(prefix="a b", after=4, epoch="e")
        events = [await watch.__anext__() for _ in range(6)]
        self.assertEqual([event.type for event in events], ["ready", "put", "ready", "reset", "ready", "put"])
        self.assertEqual([request.query.get("after") for request, _ in requests[:4]], ["4", "5", "9", "3"])
        self.assertEqual([request.query.get("epoch") for request, _ in requests[:4]], ["e", "e", "e", "f"])
        self.assertTrue(getattr(events[3], "history_replaced"))
        self.assertEqual(getattr(events[1], "key"), "a b")
        watch.close()
        with self.assertRaises(StopAsyncIteration):
            await watch.__anext__()

    async def test_closing_the_client_ends_a_watch_quietly_and_takes_no_other(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b'event: watching\ndata: {"epoch":"e","after":4}\n\n')
            await asyncio.Event().wait()
            return stream

        app = web.Application()
        app.router.add_get("/v1/kv/watch", answer)
        client = await self.client(await self.serve(app))
        watches = client.keys.watch(), client.keys.watch()
        for watch in watches:
            self.assertEqual((await watch.__anext__()).type, "ready")
        waiting = asyncio.ensure_future(watches[0].__anext__())
        for _ in range(20):
            await asyncio.sleep(0)
        await client.close()
        for work in (waiting, watches[1].__anext__()):
            with self.assertRaises(StopAsyncIteration):
                await asyncio.wait_for(work, 20)
        with self.assertRaises(HubbubError) as raised:
            await client.keys.watch().__anext__()
        self.assertEqual(raised.exception.code, "closed")

    async def test_closing_ends_a_watch_that_waits(self) -> None:
        url, _ = await self.answering(None)
        client = Client(url, options=Options(backoff_first=60.0))
        self.addAsyncCleanup(client.close)
        watch = client.keys.watch()
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        watch.close()
        with self.assertRaises(StopAsyncIteration):
            await waiting

    async def test_closing_ends_a_watch_whose_cancellation_was_lost(self) -> None:
        url, _ = await self.answering((503, None, {"retry-after": "3600"}))
        watch = (await self.client(url)).keys.watch()

        async def losing(work: Awaitable[object], seconds: float) -> object:
            result = await work
            watch.close()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            return result

        with patch("asyncio.wait_for", losing):
            waiting = asyncio.ensure_future(watch.__anext__())
            done, _ = await asyncio.wait([waiting], timeout=20)
        self.assertEqual(len(done), 1)
        with self.assertRaises(StopAsyncIteration):
            waiting.result()


if __name__ == "__main__":
    unittest.main()
