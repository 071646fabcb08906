"""The client for asyncio."""

from __future__ import annotations

from types import TracebackType

from ._errors import HubbubError, closed
from ._http import Http
from ._keys import Keys
from ._options import Options
from ._queues import Queue
from ._rooms import Room
from ._socket import Socket


class Client:
    """A server's rooms, queues and keys. Use it as a context manager, or call `close`, in one event loop.

    `token` is a token or an API key. `user` says who calls where the server asks for no tokens.
    """

    def __init__(
        self, url: str, token: str | None = None, *, user: str | None = None, username: str | None = None,
        options: Options | None = None,
    ) -> None:
        self._http = Http(url, user, token, options or Options())
        self._username = username
        self._socket: Socket | None = None
        #: Keys with values.
        self.keys = Keys(self._http)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def room(self, name: str) -> Room:
        return Room(name, self._http, self._connected, self._username)

    def queue(self, name: str) -> Queue:
        return Queue(name, self._http)

    def set_token(self, token: str) -> None:
        """Goes on with another token of the same user, on the open socket, too.

        What was begun with the old one and ends with it begins again. Subscriptions of rooms that the new one may not
        read end with `forbidden`.
        """
        self._http.token = token
        if self._socket:
            self._socket.renew(token)

    @property
    def last_error(self) -> HubbubError | None:
        """Why the socket of the rooms, a watch or a `poll` is without a connection or an answer now.

        They try again and say nothing. `None` while all is well, and at first.
        """
        return self._http.troubles.last

    async def close(self) -> None:
        """Ends everything. Messages without a receipt are refused with code `closed`.

        Subscriptions and watches end without an error.
        """
        self.keys.end_watches()
        await self._http.close()
        if self._socket:
            await self._socket.close()

    def _connected(self) -> Socket:
        """The socket; the first use makes it."""
        if self._http.is_closed:
            raise closed()
        if self._socket is None:
            self._socket = Socket(self._http)
        return self._socket
