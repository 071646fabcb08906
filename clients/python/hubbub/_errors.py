"""What goes wrong: decide by `code`, which is stable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Codes after which nobody knows whether a request took effect.
OPEN_CODES = frozenset({"unconfirmed", "internal", "unreachable", "unexpected"})


class HubbubError(Exception):
    """A refusal by the server, or a failure to reach it. The codes are in docs/api.md."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        faults = "; ".join(f"{fault['field']} {fault['rule']}" for fault in problem.get("errors") or [])
        super().__init__(faults or problem.get("detail") or problem.get("title") or problem["code"])
        self.code: str = problem["code"]
        #: Whether the same may succeed later.
        self.retryable: bool = problem.get("retryable") is True
        self.status: int | None = problem.get("status")
        #: The whole answer, for members that only some codes have.
        self.problem = dict(problem)
        #: The server did not answer an earlier attempt of the same call, which may have taken effect.
        self.is_open = False
        #: Seconds the server asks to wait.
        self.retry_after: float = problem.get("retryAfter", 0.0)


def closed() -> HubbubError:
    return HubbubError({"code": "closed", "detail": "the client was closed"})


def unreachable(error: BaseException) -> HubbubError:
    """No answer came."""
    return HubbubError({"code": "unreachable", "detail": str(error) or type(error).__name__, "retryable": True})
