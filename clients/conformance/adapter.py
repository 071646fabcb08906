"""The program that drives a client, seen from here.

Commands are lines of JSON, `{"id":1,"op":"send",...}`. Each is answered by `{"id":1,"ok":...}` or
`{"id":1,"error":{"code","retryable","isOpen"}}`, in any order. Streams write `{"sub":NAME,"event":...}` as things happen.

| op | members | answer, or what the stream writes |
| --- | --- | --- |
| open | client, url, user, options (backoffFirst, backoffMax, answerMax, silenceMax, patience: ms) | |
| close | client | |
| send | client, room, text, messageId | the receipt |
| subscribe | sub, client, room, after?, epoch?, bufferMax? | `ready`, `message` (`message`), `reset`, `end` (`error`?) |
| hold, release | sub | the stream takes no events meanwhile |
| stop | sub | |
| queueSend | client, queue, text, messageId | the receipt |
| work | sub, client, queue, leaseMs | `delivery` (`id`, `text`) for all taken, then `acked` (`id`, `outcome`: ok, stale, open) |
| put | client, key, value, revision? | revision |
| get | client, key | value, revision; or null |
| delete | client, key | whether there was one |
| watch | sub, client, prefix, after? | `ready`, `put`, `delete`, `expire` (`key`, `revision`), `reset`, `end` (`error`?) |
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "javascript": ["node", str(CLIENTS / "javascript/conformance/adapter.mjs")],
    "python": [os.environ.get("PYTHON", "python3"), str(CLIENTS / "python/conformance/adapter.py")],
    "go": [os.environ.get("HUBBUB_GO_ADAPTER", "")],
    "rust": [os.environ.get("HUBBUB_RUST_ADAPTER", "")],
}


class Refused(Exception):
    """What the client told of a command that failed."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(json.dumps(error))
        self.code = error.get("code")
        self.is_open = bool(error.get("isOpen"))


class Adapter:
    """A client's program; its streams call back."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process
        self.answers: dict[int, asyncio.Future[Any]] = {}
        self.streams: dict[str, Any] = {}
        self.ids = 0

    @classmethod
    async def start(cls, client: str) -> Adapter:
        adapter = cls()
        adapter.process = await asyncio.create_subprocess_exec(
            *PROGRAMS[client], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        adapter.reading = asyncio.create_task(adapter.read())
        return adapter

    async def read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            frame = json.loads(line)
            if "sub" in frame:
                self.streams.get(frame["sub"], lambda _: None)(frame)
                continue
            answer = self.answers.pop(frame["id"])
            if answer.cancelled():
                continue
            if "error" in frame:
                answer.set_exception(Refused(frame["error"]))
            else:
                answer.set_result(frame["ok"])
        for answer in self.answers.values():
            answer.set_exception(AssertionError("the adapter ended"))

    def call(self, op: str, **members: Any) -> asyncio.Future[Any]:
        """Sends a command now; the answer is awaited."""
        self.ids += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers[self.ids] = answer
        given = {name: value for name, value in members.items() if value is not None}
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"id": self.ids, "op": op, **given}).encode() + b"\n")
        return answer

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self.reading.cancel()
