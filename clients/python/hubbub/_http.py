"""HTTP requests, repeated until there is a final answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from ._errors import OPEN_CODES, HubbubError, closed, unreachable
from ._options import Options
from ._troubles import Troubles, told

#: Answers of overload, which say when to come back.
OVERLOAD = (429, 503)
#: Codes of answers that are not the server's, such as a proxy's, or have no body, as those to HEAD.
CODES = {
    401: "unauthorized", 403: "forbidden", 404: "not_found", 408: "request_timeout", 429: "too_many_requests",
    501: "not_supported",
}
#: Redirects that may be a load balancer's page for maintenance: only a permanent one says that this is not the address.
TEMPORARY_REDIRECTS = (302, 303, 307)
#: Longest part of a refused handshake that is read, in bytes.
REFUSAL_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self, member: str) -> Any:
        """The JSON, which has this member."""
        try:
            found = json.loads(self.body)
        except ValueError as error:
            raise strange(str(error)) from None
        if not isinstance(found, dict) or member not in found:
            raise strange(f"no {member}")
        return found


def strange(why: str) -> HubbubError:
    """An answer that is not the server's, whatever its status: a proxy's page, for instance."""
    return HubbubError({"code": "protocol", "detail": f"the server's answer is not what is expected: {why}"})


def retry_after_of(status: int, headers: Mapping[str, str]) -> float:
    """Seconds that a refusal asks to wait."""
    try:
        return float(headers.get("retry-after", "1" if status in OVERLOAD else "0"))
    except ValueError:
        return 1.0


def problem_of(status: int, headers: Mapping[str, str], body: bytes) -> HubbubError:
    """The error of a refusal, also of a proxy's: with the type of a body that is not the server's, or is none."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        detail = body[:200].decode("utf-8", "replace") or f"the server answered {status}"
        problem = {"detail": detail, "contentType": headers.get("content-type", "")}
    if 300 <= status < 400:
        # The token is not for others, and followed, a write would become a read, whose success says nothing.
        where = f"to {headers['location'][:200]}" if "location" in headers else "elsewhere"
        detail = f"the server redirects {where}; only the address that answers itself will do"
        problem = {"code": "unexpected", "retryable": status in TEMPORARY_REDIRECTS, "detail": detail}
    is_retryable = status in (408, 429) or (status >= 500 and status != 501)
    base = {"code": CODES.get(status, "unexpected"), "retryable": is_retryable}
    return HubbubError({**base, **problem, "status": status, "retryAfter": retry_after_of(status, headers)})


def _invalid(field: str, rule: str) -> HubbubError:
    return HubbubError({"code": "invalid", "errors": [{"field": field, "rule": rule}]})


def _checked_url(url: str) -> str:
    """Without this, what can never work would be tried again and again."""
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _invalid("url", "must be a URL such as http://127.0.0.1:8080 or https://chat.example")
    return url.rstrip("/")


async def _refuse_redirect(session: object, context: object, params: aiohttp.TraceRequestRedirectParams) -> None:
    """Sockets cannot be told to follow none."""
    params.response.close()
    raise problem_of(params.response.status, params.response.headers, b"")


async def _count(session: object, context: SimpleNamespace, params: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.append(None)


class Http:
    def __init__(self, url: str, user: str | None, token: str | None, options: Options) -> None:
        self.url = _checked_url(url)
        self.user = user
        self.token = token
        self.options = options
        #: Why the last handshake of a socket was refused.
        self.refusal: HubbubError | None = None
        #: What is under the last socket.
        self.transport: asyncio.Transport | None = None
        self.troubles = Troubles()
        self._session: aiohttp.ClientSession | None = None
        self._closing = asyncio.Event()

    @property
    def token(self) -> str | None:
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        if token is not None and not re.fullmatch("[!-~]*", token):
            raise _invalid("token", "must be printable ASCII without spaces")
        self._token = token

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    @property
    def session(self) -> aiohttp.ClientSession:
        """Opened by its first use, in the loop that uses it."""
        if self.is_closed:
            raise closed()
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_count)
            trace.on_request_end.append(self._look_at_handshake)
            trace.on_request_redirect.append(_refuse_redirect)
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, trace_configs=[trace])
        return self._session

    async def _look_at_handshake(self, session: object, context: object, params: aiohttp.TraceRequestEndParams) -> None:
        """aiohttp drops the body of what refuses one, and shows nobody what is under a socket."""
        response, body = params.response, b""
        if "Sec-WebSocket-Key" not in params.headers:
            return
        if response.status == 101:
            self.transport = response.connection.transport if response.connection else None
            return
        while len(body) < REFUSAL_BYTES_MAX and (chunk := await response.content.read(REFUSAL_BYTES_MAX)):
            body += chunk
        self.refusal = problem_of(response.status, response.headers, body)

    async def close(self) -> None:
        self._closing.set()
        if self._session:
            await self._session.close()

    async def sleep(self, seconds: float) -> None:
        """Waits between two attempts; not longer than until the client is closed."""
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    def headers(self) -> dict[str, str]:
        headers = {}
        if self.user is not None:
            headers["Hubbub-User"] = self.user
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def heed_renewal(self, error: HubbubError, token: str | None) -> None:
        """Makes the refusal of an attempt's token retryable if another one was given since."""
        # By the status: the answer to HEAD has no code.
        if error.status == 401 and token != self.token:
            error.retryable = True

    async def once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], limit: float,
        sent: list[None],
    ) -> Answer:
        """One attempt, as far as this is concerned: aiohttp may make a second one, so `sent` gets an entry for each."""
        timeout = aiohttp.ClientTimeout(total=limit)
        url = URL(self.url + path, encoded=True)
        every = {**self.headers(), **headers}
        try:
            request = self.session.request(
                method, url, data=body, headers=every, timeout=timeout, trace_request_ctx=sent,
                proxy=self.options.proxy,
            )
            async with request as response:
                answer = Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise unreachable(error) from error
        if answer.status >= 300:
            raise problem_of(answer.status, answer.headers, answer.body)
        return answer

    async def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> Answer:
        """Repeats a request for up to `patience`. `wait`: how long the server may wait before it answers."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.options.patience
        is_open = False
        attempt = 0
        last: HubbubError | None = None
        while True:
            sent: list[None] = []
            token = self.token
            try:
                with told(lambda: last):
                    return await self.once(method, path, body, headers or {}, self.options.answer_max + wait, sent)
            except HubbubError as error:
                self.heed_renewal(error, token)
                is_open = is_open or len(sent) > 1
                pause = self.options.pause(attempt, error.retry_after)
                if not error.retryable or loop.time() + pause > end:
                    error.is_open = is_open
                    raise
                is_open = is_open or error.code in OPEN_CODES
                last = error
            with told(lambda: last):
                await self.sleep(pause)
            attempt += 1

    async def json(
        self, member: str, method: str, path: str, value: Mapping[str, Any] | None = None, wait: float = 0.0
    ) -> Any:
        """A request with JSON, without members that are `None`, and the JSON of its answer, which has this member."""
        if value is None:
            return (await self.call(method, path, wait=wait)).json(member)
        return (await self.call(method, path, *_with_json(value), wait)).json(member)

    async def done(
        self, method: str, path: str, value: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """A request whose success has nothing to say, and the status for that."""
        body, headers = (None, headers) if value is None else _with_json(value)
        answer = await self.call(method, path, body, headers)
        if answer.status != 204:
            raise strange(f"status {answer.status}")


def _with_json(value: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    given = {name: member for name, member in value.items() if member is not None}
    return json.dumps(given).encode(), {"Content-Type": "application/json"}
