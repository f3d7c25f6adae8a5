"""One streamed HTTP exchange over asyncio: the request out, server-sent events back, each with its arrival time."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

from kvscope.errors import UsageError

MAX_BODY = 1 << 20
MAX_LINE = 1 << 20
CHUNKED = -1


class Refused(Exception):
    """The server answered, but not with a stream: ``status`` and what it said in one line."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(f"HTTP {status}: {says}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is; ``base`` is the path in front of ``/v1``."""

    host: str
    port: int
    tls: bool
    base: str

    @property
    def text(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}{self.base}"


def address_of(text: str) -> Address:
    """Read ``host:port``, ``http://host:port`` or ``…/v1``; UsageError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text}: not an address ({error}); expected http://host:port") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{text}: not an address; expected http://host:port")
    tls = parts.scheme == "https"
    base = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, port or (443 if tls else 80), tls, base)


async def events(
    address: Address, path: str, body: Mapping[str, object], headers: Mapping[str, str]
) -> AsyncIterator[tuple[float, str]]:
    """Post ``body`` and yield arrival time and data of every event. Refused, OSError or EOFError when it goes wrong."""
    reader, writer = await _open(address)
    try:
        writer.write(_request("POST", address, path, json.dumps(body).encode(), headers))
        await writer.drain()
        status, length = await _head(reader)
        if status != 200:
            raise Refused(status, _said(await _rest(reader, length)))
        pending = b""
        async for piece in _pieces(reader, length):
            now = perf_counter()
            *lines, pending = (pending + piece).split(b"\n")
            if len(pending) > MAX_LINE:
                raise EOFError("a line of the stream is longer than 1 MiB")
            for line in lines:
                if line.startswith(b"data:"):
                    yield now, line[5:].strip().decode("utf-8", "replace")
    finally:
        writer.close()


async def get(address: Address, path: str, headers: Mapping[str, str]) -> bytes:
    """Return the body of a GET; Refused unless it is 200."""
    return await _whole("GET", address, path, b"", headers)


async def post(address: Address, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> bytes:
    """Post ``body`` as JSON and return the whole answer; Refused unless it is 200."""
    return await _whole("POST", address, path, json.dumps(body).encode(), headers)


async def _whole(method: str, address: Address, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    reader, writer = await _open(address)
    try:
        writer.write(_request(method, address, path, body, headers))
        await writer.drain()
        status, length = await _head(reader)
        found = await _rest(reader, length)
        if status != 200:
            raise Refused(status, _said(found))
        return found
    finally:
        writer.close()


async def _open(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if address.tls else None
    return await asyncio.open_connection(address.host, address.port, ssl=context, limit=MAX_LINE)


def _request(method: str, address: Address, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"{method} {address.base}{path} HTTP/1.1",
        f"Host: {address.host}:{address.port}",
        "Accept: text/event-stream, application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _head(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    """Read the status and how long the body is: bytes, ``CHUNKED``, or None for until the connection closes."""
    words = (await reader.readline()).split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise EOFError("the server answered with something that is not HTTP")
    length: int | None = None
    while (line := (await reader.readline()).strip().lower()) != b"":
        name, _, value = line.partition(b":")
        if name == b"transfer-encoding" and b"chunked" in value:
            length = CHUNKED
        elif name == b"content-length" and value.strip().isdigit() and length is None:
            length = int(value)
    return int(words[1]), length


async def _pieces(reader: asyncio.StreamReader, length: int | None) -> AsyncIterator[bytes]:
    if length == CHUNKED:
        async for piece in _chunks(reader):
            yield piece
        return
    left = length
    while left is None or left > 0:
        piece = await reader.read(1 << 16 if left is None else min(left, 1 << 16))
        if not piece:
            return
        left = None if left is None else left - len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size_line = await reader.readline()
        try:
            size = int(size_line.partition(b";")[0], 16)
        except ValueError:
            raise EOFError("the stream broke off") from None
        if size == 0:
            return
        yield (await reader.readexactly(size + 2))[:-2]


async def _rest(reader: asyncio.StreamReader, length: int | None) -> bytes:
    body = b""
    async for piece in _pieces(reader, length):
        body += piece
        if len(body) > MAX_BODY:
            break
    return body


def _said(body: bytes) -> str:
    """Return the message of an error body in one short line."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        error = found.get("error", found)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:200] or "nothing"
