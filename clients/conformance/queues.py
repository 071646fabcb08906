"""Queues: sent once, acknowledged once, never delivered after that."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

MESSAGES = 40
WORKERS = 2
LEASE_MS = 1_500


class QueueLoad:
    def __init__(self, round: Any) -> None:
        self.round = round
        self.queue = f"queue-{round.number}"
        self.sent: dict[str, str] = {}
        #: Texts whose sending began after the fault.
        self.late: set[str] = set()
        self.outcomes: dict[str, Counter[str]] = {}
        self.texts: dict[str, str] = {}
        self.is_disturbed = True
        #: What the server told last.
        self.seen: dict[str, Any] = {}
        self.fault: str | None = None

    def answered(self) -> int:
        return len(self.sent)

    def requests(self) -> int:
        return 4 * MESSAGES

    def state(self) -> str:
        return f"queue: {len(self.sent)} sent, {len(self.outcomes)} taken, {self.unsettled()} unsettled; {self.seen}"

    async def prepare(self) -> None:
        round = self.round
        await round.server.put(f"/v1/queues/{self.queue}", {"leaseMs": LEASE_MS})
        self.sender = await round.open("queue-sender")
        for worker in range(WORKERS):
            client = await round.open(f"worker-{worker}")
            sub = f"worker-{round.number}-{worker}"
            round.adapter.streams[sub] = self.on_event
            await round.adapter.call("work", sub=sub, client=client, queue=self.queue, leaseMs=LEASE_MS)

    def on_event(self, frame: dict[str, Any]) -> None:
        kind = frame["event"]
        if kind == "end":
            self.fault = self.fault or f"a worker ended: {frame.get('error')}"
            return
        id = frame["id"]
        outcomes = self.outcomes.setdefault(id, Counter())
        if kind == "delivery":
            self.texts[id] = frame["text"]
            # A restored server does not know what was acknowledged after the backup.
            if outcomes["ok"] and not self.round.is_restore:
                self.fault = self.fault or f"{frame['text']} was delivered after it was acknowledged"
        else:
            outcomes[frame["outcome"]] += 1

    async def work(self) -> None:
        gate = asyncio.Semaphore(8)

        async def send(number: int) -> None:
            text = f"job {number}"
            async with gate:
                if not self.is_disturbed:
                    self.late.add(text)
                receipt = await self.round.adapter.call(
                    "queueSend", client=self.sender, queue=self.queue, text=text, messageId=f"{self.queue}-{number}"
                )
                self.sent[text] = receipt["id"]

        await asyncio.gather(*(send(number) for number in range(MESSAGES)))

    def undisturbed(self) -> None:
        self.is_disturbed = False

    def unsettled(self) -> int:
        """Messages of this history that nobody has acknowledged for sure, or perhaps."""
        wanted = {id for text, id in self.sent.items() if not self.round.is_restore or text in self.late}
        return sum(1 for id in wanted if not (self.outcomes.get(id, {}).get("ok") or self.outcomes.get(id, {}).get("open")))

    async def check(self) -> None:
        while self.fault is None and self.unsettled():
            await asyncio.sleep(0.01)
        while self.fault is None and (await self.counts())["messages"]:
            await asyncio.sleep(0.05)
        assert self.fault is None, self.fault
        if not self.round.is_restore:
            counts = await self.counts()
            assert counts["sent"] == MESSAGES, f"the queue was sent {counts['sent']} messages, not {MESSAGES}"
            assert len(set(self.sent.values())) == MESSAGES, "two messages have one id"
            twice = [self.texts[id] for id, outcomes in self.outcomes.items() if outcomes["ok"] > 1]
            assert not twice, f"acknowledged twice: {twice}"
            wrong = [text for text, id in self.sent.items() if self.texts[id] != text]
            assert not wrong, f"delivered with another text: {wrong}"
        for worker in range(WORKERS):
            await self.round.adapter.call("stop", sub=f"worker-{self.round.number}-{worker}")

    async def counts(self) -> dict[str, Any]:
        self.seen = json.loads(await self.round.server.get(f"/v1/queues/{self.queue}"))
        return self.seen
