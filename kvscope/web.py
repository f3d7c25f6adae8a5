"""The dashboard's page server: textual-serve, which asks nobody where a request comes from, behind a check that does.

A browser sends a page's requests wherever the page says, also to this machine, and a name may be made to point here
(DNS rebinding). Whoever reaches the WebSocket has the keys of the dashboard, so it opens only for a page of this very
server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer(Server):
    """Serves ``command`` at ``host``:``port`` to pages that it served itself."""

    def __init__(self, command: str, host: str, port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        super().__init__(command, host=host, port=port, title="kvscope", public_url=f"http://{shown}:{port}")

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        names = {"localhost", self.host.lower()}

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if why := refusal(request.headers.get("Host"), request.headers.get("Origin"), request.path, names):
                raise web.HTTPForbidden(text=f"refused: {why}\n")
            return await handler(request)

        app.middlewares.append(check)
        return app


def refusal(host: str | None, origin: str | None, path: str, names: set[str]) -> str:
    """Return why a request is refused, or the empty string. ``names`` are those the server may be called by."""
    if host is None or not _is_own(f"//{host}", names):
        return "a Host that is none of this server's names"
    if origin is None:
        # A browser always says whose page opens a WebSocket.
        return "a WebSocket that no page asked for" if path == "/ws" else ""
    if urlsplit(origin).netloc.lower() != host.lower():
        return "a page from elsewhere (its Origin is not this server)"
    return ""


def _is_own(address: str, names: set[str]) -> bool:
    try:
        name = (urlsplit(address).hostname or "").rstrip(".")
        return name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
