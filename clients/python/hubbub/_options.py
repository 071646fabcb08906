"""Settings of a client. Times are seconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

#: The attempt from which on the backoff counts for a server that has too much to do.
OVERLOAD_ATTEMPT = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    #: Pauses between attempts: doubled from the first to the longest, with a random part.
    backoff_first: float = 0.3
    backoff_max: float = 10.0
    #: Longest time for an answer.
    answer_max: float = 15.0
    #: Longest silence of a connection before it is probed or given up.
    silence_max: float = 40.0
    #: How long a request of queues and keys is repeated.
    patience: float = 60.0
    #: Most messages that wait for their receipt; further ones are refused with `queue_full`.
    waiting_max: int = 1_000
    #: Most messages of one room on the way at a time.
    in_flight_max: int = 32
    #: The URL of an HTTP proxy. Those of the environment are not used.
    proxy: str | None = None

    def pause(self, attempt: int, retry_after: float = 0.0, draw: Callable[[], float] = random.random) -> float:
        """The pause before another attempt, in seconds, `attempt` from 0: never less than the server asks for.

        Those who are told the same second do not come back at the same moment.
        """
        return retry_after + draw() * min(self.backoff_max, self.backoff_first * 2.0 ** min(attempt, 20))
