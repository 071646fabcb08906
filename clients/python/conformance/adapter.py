"""Lets the conformance programme drive this client; the commands are in `../../conformance/adapter.py`."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import hubbub

TIMES = {"backoffFirst": "backoff_first", "backoffMax": "backoff_max", "answerMax": "answer_max",
         "silenceMax": "silence_max", "patience": "patience"}


def say(**frame: Any) -> None:
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


def error_of(error: BaseException) -> dict[str, Any]:
    detail = "".join(traceback.format_exception(error))[-2_000:]
    if isinstance(error, hubbub.HubbubError):
        return {"code": error.code, "retryable": error.retryable, "isOpen": error.is_open, "detail": detail}
    return {"code": repr(error), "detail": detail}


def event_of(event: Any) -> dict[str, Any]:
    if isinstance(event, hubbub.MessageEvent):
        message = event.message
        return {"message": {"messageId": message.message_id, "roomId": message.room_id, "seq": message.seq, "message": message.message}}
    found = {field.name: getattr(event, field.name) for field in fields(event)}
    if "history_replaced" in found:
        found["historyReplaced"] = found.pop("history_replaced")
    found.pop("type", None)
    return found


class Adapter:
    def __init__(self) -> None:
        self.clients: dict[str, hubbub.Client] = {}
        self.streams: dict[str, Any] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, id: int, op: str, members: dict[str, Any]) -> None:
        try:
            say(id=id, ok=await getattr(self, f"op_{op}")(**members))
        except Exception as error:
            say(id=id, error=error_of(error))

    async def op_open(self, client: str, url: str, user: str, options: dict[str, float]) -> None:
        given = hubbub.Options(**{TIMES[name]: value / 1_000 for name, value in options.items()})
        self.clients[client] = hubbub.Client(url, user=user, options=given)

    async def op_close(self, client: str) -> None:
        await self.clients.pop(client).close()

    async def op_send(self, client: str, room: str, text: str, messageId: str) -> dict[str, Any]:
        receipt = await self.clients[client].room(room).send(text, message_id=messageId)
        return {"seq": receipt.seq, "epoch": receipt.epoch}

    async def op_subscribe(
        self, sub: str, client: str, room: str, after: int | None = None, epoch: str | None = None, bufferMax: int = 1_000
    ) -> None:
        stream = self.clients[client].room(room).subscribe(after=after, epoch=epoch, buffer_max=bufferMax)
        self.spawn(self.pump(sub, stream))

    async def op_watch(self, sub: str, client: str, prefix: str, after: int | None = None) -> None:
        self.spawn(self.pump(sub, self.clients[client].keys.watch(prefix=prefix, after=after)))

    async def pump(self, sub: str, stream: Any) -> None:
        self.streams[sub] = stream
        try:
            async for event in stream:
                if sub in self.held:
                    await self.held[sub].wait()
                if self.streams.get(sub) is not stream:
                    return
                say(sub=sub, event=event.type, **event_of(event))
            if self.streams.get(sub) is stream:
                say(sub=sub, event="end")
        except Exception as error:
            if self.streams.get(sub) is stream:
                say(sub=sub, event="end", error=error_of(error))

    async def op_hold(self, sub: str) -> None:
        self.held[sub] = asyncio.Event()

    async def op_release(self, sub: str) -> None:
        self.held.pop(sub).set()

    async def op_stop(self, sub: str) -> None:
        stream = self.streams.pop(sub)
        stream.cancel() if isinstance(stream, asyncio.Task) else stream.close()

    async def op_queueSend(self, client: str, queue: str, text: str, messageId: str) -> dict[str, Any]:
        return {"id": (await self.clients[client].queue(queue).send(text, message_id=messageId)).id}

    async def op_work(self, sub: str, client: str, queue: str, leaseMs: int) -> None:
        self.streams[sub] = asyncio.create_task(self.work(sub, self.clients[client].queue(queue), leaseMs))

    async def work(self, sub: str, queue: hubbub.Queue, lease_ms: int) -> None:
        try:
            while True:
                taken = await queue.take(max=3, lease_ms=lease_ms, wait_ms=500)
                for delivery in taken:
                    say(sub=sub, event="delivery", id=delivery.id, text=delivery.message)
                for delivery in taken:
                    say(sub=sub, event="acked", id=delivery.id, outcome=await self.ack(delivery))
        except Exception as error:
            say(sub=sub, event="end", error=error_of(error))

    @staticmethod
    async def ack(delivery: hubbub.Delivery) -> str:
        try:
            await delivery.ack()
        except hubbub.HubbubError as error:
            if error.code != "stale_receipt":
                raise
            return "open" if error.is_open else "stale"
        return "ok"

    async def op_put(self, client: str, key: str, value: str, revision: int | None = None) -> int:
        return (await self.clients[client].keys.put(key, value, revision=revision)).revision

    async def op_get(self, client: str, key: str) -> dict[str, Any] | None:
        found = await self.clients[client].keys.get(key)
        return {"value": found.text, "revision": found.revision} if found else None

    async def op_delete(self, client: str, key: str) -> bool:
        return await self.clients[client].keys.delete(key)


async def main() -> None:
    adapter = Adapter()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        while line := await loop.run_in_executor(pool, sys.stdin.readline):
            frame = json.loads(line)
            # Begun in the order of the commands; answered as they end.
            adapter.spawn(adapter.answer(frame.pop("id"), frame.pop("op"), frame))


asyncio.run(main())
