"""Client for a Hubbub server: rooms, queues and keys.

`Client` is for asyncio, `BlockingClient` for everything else. See README.md; the promise they keep is in
docs/protocol.md.
"""

from ._blocking import BlockingClient
from ._client import Client
from ._errors import HubbubError
from ._keys import KeyChange, KeyEvent, KeyReady, Keys, KeyValue, Put, Watch
from ._options import Options
from ._queues import Delivery, Queue, QueueReceipt
from ._rooms import Room, Subscription
from ._types import Message, MessageEvent, Position, Ready, Receipt, Reset, RoomEvent

__all__ = [
    "BlockingClient", "Client", "Delivery", "HubbubError", "KeyChange", "KeyEvent", "KeyReady", "KeyValue", "Keys", "Message",
    "MessageEvent", "Options", "Position", "Put", "Queue", "QueueReceipt", "Ready", "Receipt", "Reset", "Room", "RoomEvent",
    "Subscription", "Watch",
]
