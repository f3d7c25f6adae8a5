"""One HTTP GET of a metrics page: bounded in time and size, never led to another host."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import ssl
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from typing import IO
from urllib.parse import urlsplit

from kvscope.errors import SourceError
from kvscope.sources import access
from kvscope.sources._exchange import Deadline, NotWhole, Plain, Secure
from probes import border

PAGE_LIMIT = border.PAGE_BYTES

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
        shown = border.printable(access.without_query(newurl), 200)
        asked = access.without_query(req.full_url)
        if old.hostname == new.hostname and old.scheme == "https" and new.scheme == "http":
            raise FetchError(f"{asked}: redirects from https to http ({shown}); give that address if it is meant")
        if (old.hostname, old.port) != (new.hostname, new.port) or new.scheme not in ("http", "https"):
            raise FetchError(f"{asked}: redirects to another place ({shown}); give that address if it is meant")
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

    ``timeout_s`` is for the exchange as a whole, from the name's lookup to the last byte: who sends a byte now and then
    gains nothing by it. ``form`` is posted where given; ``headers`` are added to our own; ``tls`` says whom to
    trust and who we are.
    """
    known = access.current()
    tls = tls or known.tls
    # A Prometheus that was given its own credentials gets no others.
    ours = headers if headers is not None else known.headers
    request = urllib.request.Request(url, data=form, headers={**_HEADERS, **ours})
    said_url, url = url, access.without_query(url)
    until = Deadline(timeout_s, clock)
    try:
        with _opener(said_url, tls, until).open(request, timeout=timeout_s) as answer:
            body = _body(url, answer, until)
    except urllib.error.HTTPError as error:
        said, reason = _said(error), border.printable(error.reason, 80)
        raise FetchError(f"{url}: answers HTTP {error.code} {reason}{said}; expected 200") from error
    except urllib.error.URLError as error:
        raise FetchError(f"{url}: {_plain(error.reason, timeout_s)}") from error
    except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
        raise FetchError(f"{url}: {_plain(error, timeout_s)}") from error
    return body.decode("utf-8", errors="replace")


def _said(error: urllib.error.HTTPError) -> str:
    """Return what a refusal says of itself in its JSON body, as Prometheus does."""
    with error, contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        found = border.document(error.read(_CHUNK), "the answer")
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            return f" ({border.printable(found['error'], 200)})"
    return ""


def _body(url: str, answer: http.client.HTTPResponse, until: Deadline) -> bytes:
    packed = answer.headers.get("Content-Encoding", "").strip().lower()
    if packed not in ("", "identity", "gzip", "x-gzip"):
        raise FetchError(f"{url}: the page is packed as {border.printable(packed, 40)}; expected gzip or plain text")
    unpacker = _Gzip() if packed.endswith("gzip") else None
    parts: list[bytes] = []
    size = 0
    while chunk := answer.read1(_CHUNK):
        if unpacker is not None:
            chunk = unpacker.add(chunk, PAGE_LIMIT - size + 1)
        parts.append(chunk)
        size += len(chunk)
        if size > PAGE_LIMIT:
            raise TooLarge(f"{url}: the page is larger than {PAGE_LIMIT >> 20} MiB; that is no engine's metrics page")
        until.left_s()
    if answer.length:
        raise FetchError(f"{url}: the connection closed in the middle of the page")
    if unpacker is not None and not unpacker.whole:
        raise FetchError(f"{url}: the page ended in the middle of its gzip stream")
    return b"".join(parts)


class _Gzip:
    """Unpacks a stream of gzip members, one behind the other as RFC 1952 allows; zeros behind the last are padding."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False
        self.whole = False

    def add(self, data: bytes, most: int) -> bytes:
        """Return what these bytes unpack to, ``most`` at most. zlib.error."""
        found = []
        while data and most > 0:
            if self.whole:
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member, self.whole = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            part = self._member.decompress(data, most)
            found.append(part)
            most -= len(part)
            self.whole = self._member.eof
            data = self._member.unused_data if self.whole else self._member.unconsumed_tail
        return b"".join(found)


def _opener(url: str, tls: ssl.SSLContext | None, until: Deadline) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_SameHostOnly(), Plain(until), Secure(until, tls)]
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
    if isinstance(reason, NotWhole):
        return f"not whole after {timeout_s:g} s"
    if isinstance(reason, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection closed in the middle of the page"
    if isinstance(reason, http.client.BadStatusLine):
        return "what listens there does not speak HTTP"
    if isinstance(reason, OSError) and reason.strerror:
        return border.printable(reason.strerror)
    return border.printable(reason, 200) or type(reason).__name__
