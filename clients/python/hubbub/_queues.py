"""Queues: sending, taking on lease, and working through them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ._errors import HubbubError
from ._http import Http
from ._ids import make_id, segment_of
from ._options import OVERLOAD_ATTEMPT

#: Longest time the server waits for a message, in seconds.
WAIT_MAX = 20.0


@dataclass(frozen=True)
class QueueReceipt:
    """The message is on disk."""

    id: str
    copies: int
    sent_at: str
    duplicate: bool


class Queue:
    def __init__(self, name: str, http: Http) -> None:
        self.name = name
        self._http = http
        self._path = f"/v1/queues/{segment_of(name)}"

    async def create(self, **settings: Any) -> dict[str, Any]:
        """Creates the queue, or changes the settings that are named, as in docs/api.md: `leaseMs`, `maxDeliveries`, …"""
        made: dict[str, Any] = await self._http.json("messages", "PUT", self._path, settings)
        return made

    async def state(self) -> dict[str, Any]:
        """Settings and counts."""
        state: dict[str, Any] = await self._http.json("messages", "GET", self._path)
        return state

    async def send(
        self, message: str, *, message_id: str | None = None, sender: str | None = None, receiver: str | None = None,
        audience: str | None = None, delay_ms: int | None = None, deliver_at: str | None = None,
        group_id: str | None = None, ttl_ms: int | None = None,
    ) -> QueueReceipt:
        """Returns once the message is on disk. Repeated with the same id until then: it is stored once."""
        body = {
            "message": message, "messageId": message_id or make_id(), "sender": sender or self._http.user,
            "receiver": receiver, "audience": audience, "delayMs": delay_ms, "deliverAt": deliver_at,
            "groupId": group_id, "ttlMs": ttl_ms,
        }
        receipt = await self._http.json("id", "POST", f"{self._path}/messages", body)
        return QueueReceipt(receipt["id"], receipt["copies"], receipt["sentAt"], receipt["duplicate"])

    async def take(
        self, *, max: int = 1, lease_ms: int | None = None, wait_ms: int = 0, receiver: str | None = None,
        order: str | None = None,
    ) -> list[Delivery]:
        """Takes up to `max` messages on lease, and waits up to `wait_ms` for the first."""
        body = {
            "max": max, "leaseMs": lease_ms, "waitMs": wait_ms, "receiver": receiver or self._http.user, "order": order,
        }
        taken = await self._http.json("messages", "POST", f"{self._path}/lease", body, wait=wait_ms / 1_000)
        return [Delivery(message, self._http, self._path) for message in taken["messages"]]

    async def poll(
        self, handler: Callable[[Delivery], Awaitable[None] | None], *, lease_ms: int = 30_000,
        receiver: str | None = None, on_error: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """Works through the queue until it is cancelled.

        Calls `handler` with each delivery, extends its lease meanwhile, and acknowledges it when the handler is done.
        When the handler raises, the message goes back to the queue, and `on_error` gets the error; so it does when an
        acknowledgement fails: then the message comes again, but with `is_open` it may be done. Cancelling ends the
        handler, too: its message comes again when the lease ends.
        """
        who, troubles = object(), self._http.troubles
        try:
            while True:
                try:
                    wait_ms = int(WAIT_MAX * 1_000)
                    for delivery in await self.take(lease_ms=lease_ms, wait_ms=wait_ms, receiver=receiver):
                        await _work(delivery, handler, lease_ms, on_error)
                    troubles.set(who, None)
                except HubbubError as error:
                    if not error.retryable:
                        raise
                    troubles.set(who, error)
                    # Whatever the patience was.
                    await self._http.sleep(self._http.options.pause(OVERLOAD_ATTEMPT, error.retry_after))
        finally:
            troubles.set(who, None)


class Delivery:
    """A message on lease."""

    def __init__(self, json: Mapping[str, Any], http: Http, path: str) -> None:
        self.id: str = json["id"]
        self.sender: str | None = json.get("sender")
        self.receiver: str | None = json.get("receiver")
        #: The text.
        self.message: str = json["message"]
        self.group_id: str | None = json.get("groupId")
        self.sent_at: str = json["sentAt"]
        self.deliveries: int = json["deliveries"]
        self.receipt: str = json["receipt"]
        self.leased_until: str = json["leasedUntil"]
        self._http = http
        self._path = f"{path}/messages/{quote(self.id, safe='')}"

    async def _change_lease(self, member: str, how: str, **members: Any) -> Any:
        return await self._http.json(member, "POST", f"{self._path}/{how}", {"receipt": self.receipt, **members})

    async def ack(self) -> None:
        """Done: the message is gone.

        Raises `stale_receipt` if the lease had ended; with `is_open` that may be this call's own doing.
        """
        await self._http.done("POST", f"{self._path}/ack", {"receipt": self.receipt})

    async def nack(self, *, delay_ms: int | None = None) -> None:
        """Gives the message back."""
        await self._change_lease("id", "nack", delayMs=delay_ms)

    async def extend(self, lease_ms: int | None = None) -> None:
        """The lease ends `lease_ms` from now."""
        self.leased_until = (await self._change_lease("leasedUntil", "extend", leaseMs=lease_ms))["leasedUntil"]


async def _extend(delivery: Delivery, lease_ms: int) -> None:
    while True:
        await asyncio.sleep(lease_ms / 3_000)
        try:
            await delivery.extend(lease_ms)
        except HubbubError:
            # The acknowledgement will tell.
            pass


async def _work(
    delivery: Delivery, handler: Callable[[Delivery], Awaitable[None] | None], lease_ms: int,
    on_error: Callable[[Exception], None],
) -> None:
    extending = asyncio.create_task(_extend(delivery, lease_ms))
    try:
        result = handler(delivery)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        try:
            await delivery.nack()
        except HubbubError:
            pass
        on_error(error)
        return
    finally:
        extending.cancel()
    try:
        await delivery.ack()
    except HubbubError as error:
        on_error(error)
        if error.code != "stale_receipt":
            raise
