"""Keys: never older than what was confirmed, no lost increment, every change watched once."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter import Refused

PUTS = 30
WRITERS = 2
INCREMENTS = 15


class KeyLoad:
    def __init__(self, round: Any) -> None:
        self.round = round
        self.prefix = f"key {round.number}/"
        self.changes: list[dict[str, Any]] = []
        self.resets = 0
        self.head = 0
        self.fault: str | None = None
        #: Revision → whether it was confirmed after the fault.
        self.confirmed: dict[int, bool] = {}
        self.is_disturbed = True
        self.counted = {"sure": 0, "open": 0}
        self.done = 0

    def answered(self) -> int:
        return self.done

    def requests(self) -> int:
        return 2 * PUTS + 8 * WRITERS * INCREMENTS

    def state(self) -> str:
        return f"keys: {self.done} done, {len(self.confirmed)} changes confirmed, {len(self.changes)} watched"

    async def prepare(self) -> None:
        self.writers = [await self.round.open(f"key-writer-{index}") for index in range(WRITERS)]
        watching = await self.round.open("watcher")
        self.sub = f"watch-{self.round.number}"
        self.round.adapter.streams[self.sub] = self.on_event
        first = await self.put(self.writers[0], "first", "0")
        await self.round.adapter.call("watch", sub=self.sub, client=watching, prefix=self.prefix, after=first - 1)
        await self.put(self.writers[0], "count", "0", revision=0)
        while len(self.changes) < 2:
            await asyncio.sleep(0.002)

    def on_event(self, frame: dict[str, Any]) -> None:
        kind = frame["event"]
        if kind == "reset":
            self.resets += 1
            # What came before is to be listed; the watch shows what comes after.
            self.head = frame["head"]
            self.changes.clear()
            self.check_that(frame["historyReplaced"], "a reset that does not tell why")
        elif kind in ("put", "delete"):
            last = self.changes[-1]["revision"] if self.changes else 0
            self.check_that(frame["revision"] > last, f"revision {frame['revision']} after {last}")
            self.check_that(frame["key"].startswith(self.prefix), f"a change of {frame['key']}")
            self.changes.append(frame)
        elif kind == "end":
            self.check_that(False, f"the watch ended: {frame.get('error')}")

    def check_that(self, holds: bool, otherwise: str) -> None:
        if not holds and self.fault is None:
            self.fault = f"the watch: {otherwise}"

    async def put(self, client: str, key: str, value: str, revision: int | None = None) -> int:
        is_late = not self.is_disturbed
        stored = await self.round.adapter.call("put", client=client, key=self.prefix + key, value=value, revision=revision)
        self.confirmed[stored] = is_late
        self.done += 1
        return stored

    async def get(self, client: str, key: str) -> dict[str, Any] | None:
        return await self.round.adapter.call("get", client=client, key=self.prefix + key)

    async def work(self) -> None:
        counting = [self.count(client) for client in self.writers]
        await asyncio.gather(self.put_and_get(self.writers[0]), *counting)

    async def put_and_get(self, client: str) -> None:
        for number in range(PUTS):
            is_late = not self.is_disturbed
            try:
                stored = await self.put(client, f"own/{number % 7} ä", str(number))
            except Refused as refused:
                # Another history has another value: nobody can tell whether it had this one before.
                assert self.round.is_restore and refused.code == "unconfirmed", f"a change was refused: {refused}"
                continue
            found = await self.get(client, f"own/{number % 7} ä")
            if is_late or not self.round.is_restore:
                wanted = {"value": str(number), "revision": stored}
                assert found == wanted, f"read {found} after {wanted} was confirmed"
            if number % 10 == 9:
                await self.delete(client, f"own/{number % 7} ä", is_late)

    async def delete(self, client: str, key: str, is_late: bool) -> None:
        try:
            was_there = await self.round.adapter.call("delete", client=client, key=self.prefix + key)
        except Refused as refused:
            assert self.round.is_restore and refused.code == "unconfirmed", f"a deletion was refused: {refused}"
            return
        if is_late or not self.round.is_restore:
            assert was_there is True, f"{key} was deleted by nobody else"
            assert await self.get(client, key) is None, f"{key} is read after it was deleted"

    async def count(self, client: str) -> None:
        """Increments a number that others increment, too."""
        done = 0
        while done < INCREMENTS:
            found = await self.get(client, "count")
            value, revision = (int(found["value"]), found["revision"]) if found else (0, 0)
            try:
                await self.put(client, "count", str(value + 1), revision=revision)
                self.counted["sure"] += 1
            except Refused as refused:
                if refused.code == "condition_failed":
                    continue
                assert refused.code == "unconfirmed", f"an increment was refused: {refused}"
                self.counted["open"] += 1
            done += 1

    def undisturbed(self) -> None:
        self.is_disturbed = False

    async def check(self) -> None:
        due = 1 if self.round.is_restore else 0
        late = {revision for revision, is_late in self.confirmed.items() if is_late or not due}
        while self.fault is None and (
            self.resets < due
            or not {revision for revision in late if revision > self.head} <= {change["revision"] for change in self.changes}
        ):
            await asyncio.sleep(0.01)
        assert self.fault is None, self.fault
        assert self.resets == due, f"the watch was told {self.resets} resets, not {due}"
        if not due:
            found = await self.get(self.writers[0], "count")
            sure, most = self.counted["sure"], self.counted["sure"] + self.counted["open"]
            assert sure <= int(found["value"]) <= most, f"{found['value']} increments, of {sure} to {most}"
        await self.round.adapter.call("stop", sub=self.sub)
