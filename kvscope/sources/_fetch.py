"""One HTTP GET of a metrics page: bounded in time and size, never led to another host."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from typing import IO
from urllib.parse import urlsplit

from kvscope.errors import SourceError

PAGE_LIMIT = 64 << 20
"""Most bytes of a page, unpacked. The largest real pages are a few megabytes."""

_CHUNK = 1 << 16
_HEADERS = {
    "Accept": "text/plain;version=0.0.4,application/openmetrics-text;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "kvscope",
}


class FetchError(SourceError):
    """A page that did not come; the message says which and why."""


class TooLarge(FetchError):
    """An answer longer than any page is; it was cut off."""


class _SameHostOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a host: an address given by the user must not turn into somebody else's."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.hostname, old.port) != (new.hostname, new.port) or new.scheme not in ("http", "https"):
            raise FetchError(f"{req.full_url}: redirects to another place ({newurl}); give that address if it is meant")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(
    url: str,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> str:
    """Return the text of a page. FetchError when it does not come whole within ``timeout_s`` and ``PAGE_LIMIT``.

    ``form`` is posted where given; ``headers`` are added to our own; ``tls`` says whom to trust and who we are.
    """
    deadline = clock() + timeout_s
    request = urllib.request.Request(url, data=form, headers={**_HEADERS, **(headers or {})})
    try:
        with _opener(url, tls).open(request, timeout=timeout_s) as answer:
            body = _body(url, answer, deadline, timeout_s, clock)
    except urllib.error.HTTPError as error:
        said = _said(error)
        raise FetchError(f"{url}: answers HTTP {error.code} {error.reason}{said}; expected 200") from error
    except urllib.error.URLError as error:
        raise FetchError(f"{url}: {_plain(error.reason, timeout_s)}") from error
    except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
        raise FetchError(f"{url}: {_plain(error, timeout_s)}") from error
    return body.decode("utf-8", errors="replace")


def _said(error: urllib.error.HTTPError) -> str:
    """Return what a refusal says of itself in its JSON body, as Prometheus does."""
    with error, contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        found = json.loads(error.read(_CHUNK))
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            return f" ({found['error'][:200]})"
    return ""


def _body(
    url: str, answer: http.client.HTTPResponse, deadline: float, timeout_s: float, clock: Callable[[], float]
) -> bytes:
    zipped = answer.headers.get("Content-Encoding", "").lower() == "gzip"
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if zipped else None
    parts: list[bytes] = []
    size = 0
    while chunk := answer.read1(_CHUNK):
        if unpacker is not None:
            chunk = unpacker.decompress(chunk, PAGE_LIMIT - size + 1)
        parts.append(chunk)
        size += len(chunk)
        if size > PAGE_LIMIT:
            raise TooLarge(f"{url}: the page is larger than {PAGE_LIMIT >> 20} MiB; that is no engine's metrics page")
        if clock() > deadline:
            raise FetchError(f"{url}: not whole after {timeout_s:g} s")
    if answer.length:
        raise FetchError(f"{url}: the connection closed in the middle of the page")
    if unpacker is not None and not unpacker.eof:
        raise FetchError(f"{url}: the page ended in the middle of its gzip stream")
    return b"".join(parts)


def _opener(url: str, tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_SameHostOnly()]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _plain(reason: object, timeout_s: float) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection closed in the middle of the page"
    if isinstance(reason, http.client.BadStatusLine):
        return "what listens there does not speak HTTP"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
