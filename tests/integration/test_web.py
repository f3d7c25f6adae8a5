"""The dashboard in a page: it starts, draws, and opens for nobody but its own page."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("textual_serve")

import aiohttp

from kvscope.web import refusal

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "samples" / "quiet" / "vllm-healthy.jsonl"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_S = 60.0
ESCAPES = re.compile(r"\x1b(\[[0-9;?<>=]*[A-Za-z]|\][^\x07]*\x07)")


@contextmanager
def served(*words: str) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kvscope", *words, "--web", "--web-address", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
    try:
        assert process.stdout is not None
        assert any("Serving" in line for line in process.stdout)
        for _ in range(200):
            with socket.socket() as probe:
                probe.settimeout(PATIENCE_S)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)  # it says that it serves before it listens
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served("attach", str(RECORDING)) as found:
        yield found


async def test_its_own_page_gets_the_dashboard(port: int) -> None:
    assert "first packet" in await opened(port, {"Origin": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
async def test_no_other_page_does(port: int, headers: dict[str, str]) -> None:
    assert await opened(port, headers) == "403"


async def opened(port: int, headers: dict[str, str]) -> str:
    """Open the WebSocket; return what came of it."""
    async with aiohttp.ClientSession() as session:
        try:
            socket_ = await session.ws_connect(f"http://127.0.0.1:{port}/ws?width=100&height=30", headers=headers)
        except aiohttp.WSServerHandshakeError as error:
            return str(error.status)
        async with socket_:
            async for message in socket_:
                if message.type == aiohttp.WSMsgType.BINARY and message.data:
                    return "first packet"
    return "closed"


async def test_its_page_is_sent_the_whole_first_screen(port: int) -> None:
    wanted = {"limit", "clients send no more", "room", "KV pool", "tok/s out", "No fault seen", "Quit"}
    seen = ""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"http://127.0.0.1:{port}/ws?width=140&height=40", headers={"Origin": f"http://127.0.0.1:{port}"}
        ) as socket_,
        asyncio.timeout(PATIENCE_S),
    ):
        async for message in socket_:
            if message.type == aiohttp.WSMsgType.BINARY:
                seen += ESCAPES.sub("", message.data.decode("utf-8", "ignore"))
            if all(word in seen for word in wanted):
                break
    assert [word for word in wanted if word not in seen] == []
    assert "not drawn" not in seen


def test_a_name_that_was_made_to_point_here_is_refused(port: int) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    assert refused.value.code == 403
    refused.value.close()


def test_the_same_page_by_any_of_its_addresses_is_its_own() -> None:
    for host in ("127.0.0.1:8008", "localhost:8008", "192.0.2.7:8008", "[::1]:8008"):
        assert refusal(host, f"http://{host}", "/ws", {"localhost"}) == ""
    assert refusal("localhost:8008", "http://localhost:9", "/ws", {"localhost"})


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("words", [("attach", str(RECORDING))], ids=["attach"])
def test_a_browser_shows_it(words: tuple[str, ...]) -> None:
    assert BROWSER is not None
    with served(*words) as port, tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--timeout=20000"]
        shown = subprocess.run(
            [BROWSER, *flags, "--virtual-time-budget=15000", "--dump-dom", f"http://127.0.0.1:{port}/"],
            capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
        )  # fmt: skip
    assert "-first-byte" in shown.stdout, shown.stderr[-500:]
