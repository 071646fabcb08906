"""Messages, and what a subscription of a room brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Union


@dataclass(frozen=True)
class Message:
    message_id: str
    room_id: str
    user_id: str
    username: str | None
    #: The text.
    message: str
    message_type: str
    #: The sender's clock.
    timestamp: str
    #: The position in the room.
    seq: int
    #: The server's clock; never decreases within a room.
    received_at: str

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Message:
        return cls(
            json["messageId"], json["roomId"], json["userId"], json.get("username"), json["message"],
            json["messageType"], json["timestamp"], json["seq"], json["receivedAt"],
        )


@dataclass(frozen=True)
class Receipt:
    """The message is on disk. With a broker as the server's log only the id is known."""

    message_id: str
    seq: int | None
    epoch: str | None
    received_at: str | None
    duplicate: bool | None

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Receipt:
        return cls(json["messageId"], json.get("seq"), json.get("epoch"), json.get("receivedAt"), json.get("duplicate"))


@dataclass(frozen=True)
class Position:
    """Where to continue: both belong together."""

    epoch: str | None = None
    seq: int | None = None


@dataclass(frozen=True)
class Ready:
    """The server has accepted the subscription: at every connection. `head` tells how far missed messages go."""

    type: ClassVar[str] = "ready"
    epoch: str
    oldest: int
    head: int


@dataclass(frozen=True)
class MessageEvent:
    type: ClassVar[str] = "message"
    message: Message


@dataclass(frozen=True)
class Reset:
    """Forget what you hold. `history_replaced`: a backup was restored; otherwise retention deleted something."""

    type: ClassVar[str] = "reset"
    epoch: str
    oldest: int
    head: int
    history_replaced: bool


RoomEvent = Union[Ready, MessageEvent, Reset]
