"""Refusals without a body of the server's, and what can never succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

from hubbub import BlockingClient, Client, HubbubError, Options

from .scripted import OPTIONS, Peer, Scripted

IMPATIENT = Options(backoff_first=0.001, backoff_max=0.004, patience=0.0)


class ByStatus(Scripted):
    async def test_an_answer_without_a_body_is_repeated_if_it_may_get_better(self) -> None:
        for status in (408, 429, 503):
            url, requests = await self.answering(
                (status, None, {"retry-after": "0"}), (200, None, {"etag": '"4"'}), (204, None, {"etag": '"5"'})
            )
            self.assertEqual((await (await self.client(url)).keys.put("k", "v")).revision, 5)
            self.assertEqual(len(requests), 3)

    async def test_an_answer_without_a_body_has_the_code_of_its_status(self) -> None:
        refusals = ((401, "unauthorized", False), (403, "forbidden", False), (501, "not_supported", False),
                    (429, "too_many_requests", True))
        for status, code, retryable in refusals:
            url, _ = await self.answering((status, None, {}))
            with self.assertRaises(HubbubError) as raised:
                await (await self.client(url, IMPATIENT)).keys.delete("k")
            error = raised.exception
            self.assertEqual((error.code, error.status, error.retryable), (code, status, retryable))
        url, _ = await self.answering((403, None, {}))
        with self.assertRaisesRegex(HubbubError, "right to read"):
            await (await self.client(url)).keys.put("k", "v")

    async def test_a_proxys_words_are_no_problem_of_the_servers(self) -> None:
        for body in ("no", "null", '["no"]', '{"message": "the quota is used up"}'):
            url, _ = await self.answering((429, body, {}))
            with self.assertRaises(HubbubError) as raised:
                await (await self.client(url, IMPATIENT)).queue("q").take()
            self.assertEqual((raised.exception.code, str(raised.exception)), ("too_many_requests", body))

    async def test_an_acknowledgement_that_fails_is_told_whatever_its_code(self) -> None:
        message = {"id": "7", "message": "job", "sentAt": "t", "deliveries": 1, "receipt": "r", "leasedUntil": "t"}
        taken = (200, {"messages": [message]}, {})
        url, _ = await self.answering(taken, (503, None, {"retry-after": "0"}), (403, {"code": "forbidden"}, {}))
        errors: list[Exception] = []
        with self.assertRaises(HubbubError) as raised:
            await (await self.client(url, IMPATIENT)).queue("q").poll(lambda _: None, on_error=errors.append)
        self.assertEqual(raised.exception.code, "forbidden")
        self.assertEqual([getattr(error, "status") for error in errors], [503])


class Strange(Scripted):
    """Answers of somebody between the client and the server."""

    async def is_refused(self, work: Awaitable[object], code: str) -> None:
        with self.assertRaises(HubbubError) as raised:
            await work
        self.assertEqual((raised.exception.code, raised.exception.retryable), (code, False))

    async def test_only_the_server_says_that_there_is_no_such_key(self) -> None:
        url, _ = await self.answering((404, None, {"content-type": "application/problem+json"}))
        self.assertIs(await (await self.client(url)).keys.delete("k"), False)
        url, requests = await self.answering((404, None, {"content-type": "text/html"}))
        keys = (await self.client(url)).keys
        for work in (keys.delete("k"), keys.put("k", "v"), keys.get("k")):
            await self.is_refused(work, "not_found")
        self.assertEqual(len(requests), 3)

    async def test_a_success_without_the_tag_of_a_key_is_not_the_servers(self) -> None:
        for headers in ({}, {"etag": '"57-gzip"'}, {"etag": '"a"'}):
            url, requests = await self.answering((200, None, headers))
            keys = (await self.client(url)).keys
            for work in (keys.get("k"), keys.put("k", "v"), keys.put("k", "v", revision=3), keys.delete("k")):
                await self.is_refused(work, "protocol")
            self.assertEqual(len(requests), 4)
        weak = {"etag": 'W/"57"'}
        url, requests = await self.answering((200, "v", weak), (200, None, weak), (204, None, {}))
        keys = (await self.client(url)).keys
        found = await keys.get("k")
        self.assertEqual((found and found.revision, await keys.delete("k")), (57, True))
        self.assertEqual(requests[2][0].headers["If-Match"], '"57"')

    async def test_a_success_that_is_not_what_the_server_answers_is_none(self) -> None:
        message = {"id": "7", "message": "job", "sentAt": "t", "deliveries": 1, "receipt": "r", "leasedUntil": "t"}
        for page in (None, "<html>", "null", {"status": "ok"}):
            url, requests = await self.answering((200, {"messages": [message]}, {}), (200, page, {}))
            client = await self.client(url)
            queue = client.queue("q")
            [delivery] = await queue.take()
            works: tuple[Awaitable[object], ...] = (
                queue.create(), queue.state(), queue.send("text"), queue.take(), delivery.ack(), delivery.nack(),
                delivery.extend(), client.keys.list(), client.keys.delete("k", revision=3), client.room("r").history(),
            )
            for work in works:
                await self.is_refused(work, "protocol")
            self.assertEqual(len(requests), 1 + len(works))


class Never(Scripted):
    async def refused(self, client: Client) -> HubbubError:
        """How sending ends; following ends with the same."""
        following = asyncio.ensure_future(client.room("r").subscribe().__anext__())
        with self.assertRaises(HubbubError) as raised:
            await asyncio.wait_for(client.room("r").send("text"), 5)
        with self.assertRaises(HubbubError) as ended:
            await asyncio.wait_for(following, 5)
        self.assertEqual(ended.exception.code, raised.exception.code)
        return raised.exception

    async def test_a_handshake_that_no_repetition_makes_better_is_final(self) -> None:
        for status, code in ((400, "malformed"), (404, "not_found"), (422, "invalid")):
            url, requests = await self.answering((status, {"code": code, "detail": "why", "retryable": False}, {}))
            error = await self.refused(await self.client(url))
            self.assertEqual((error.code, error.status, str(error), len(requests)), (code, status, "why", 1))
        url, _ = await self.answering((408, None, {}), (404, None, {}))
        self.assertEqual((await self.refused(await self.client(url))).code, "not_found")

    async def test_an_address_or_a_token_that_can_never_work_is_refused_at_once(self) -> None:
        for url in ("127.0.0.1:8080", "localhost:8080", "ftp://h", "http://", ""):
            with self.assertRaises(HubbubError) as raised:
                Client(url)
            self.assertEqual(raised.exception.code, "invalid")
        for token in ("a\nb", "a b", "ö"):
            with self.assertRaises(HubbubError):
                BlockingClient("http://h", token)
            with self.assertRaises(HubbubError):
                Client("http://h").set_token(token)

    async def test_what_nobody_thought_of_ends_the_socket(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            await peer.answer(type="unsubscribed")

        with patch("traceback.print_exc"):
            self.assertEqual((await self.refused(await self.socket(on_frame, OPTIONS))).code, "unexpected")
