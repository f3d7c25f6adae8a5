"""What reading pages costs: a large page from text to findings, and many endpoints every second.

``python -m tests.bench.bench_sources``. Processor time of this process; the server that answers is another process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from kvscope.diagnose import diagnose
from kvscope.playbook import load_all
from kvscope.sources import maps
from kvscope.sources._reader import reader_for
from kvscope.sources.fleet import FleetSource
from kvscope.sources.source import Description
from kvscope.store import Store

PAGE = Path(__file__).parents[2] / "samples/scrapes/vllm-0.32.0.prom"
ENDPOINTS, SECONDS = 64, 20
SERVER = f"""
import http.server
body = open({str(PAGE)!r}, "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path.endswith("/metrics")
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(body if found else b"")
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def large_page(copies: int = 20) -> str:
    """A page of about 1 MB: as many engine cores as it takes."""
    text = PAGE.read_text()
    return "\n".join(text.replace('engine="0"', f'engine="{core}"') for core in range(copies))


def bench_page() -> None:
    """Text to findings, first and again. What is imported for the first page is a process's start, and told apart."""
    text, books, store = large_page(), load_all(), Store()
    began = time.process_time()
    maps.expected()
    imported, began = time.process_time() - began, time.process_time()
    reader = reader_for(text, "bench")
    store.add(reader.read(text, 0.0).samples)
    diagnose(store, books, Description("vllm", "bench"))
    first = time.process_time() - began
    spent = []
    for t in range(1, 40):
        began = time.process_time()
        store.add(reader.read(text, float(t)).samples)
        diagnose(store, books, Description("vllm", "bench"))
        spent.append(time.process_time() - began)
    print(f"{len(text) / 1e6:.2f} MB page, scrape to findings: first {first * 1e3:.0f} ms of CPU (and "
          f"{imported * 1e3:.0f} ms to import {len(maps.names())} name maps), later median "
          f"{median(spent) * 1e3:.1f} ms, worst {max(spent) * 1e3:.1f} ms")  # fmt: skip


def bench_fleet() -> None:
    """Poll every endpoint once a second, with a diagnosis every fifth second."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            source = FleetSource([f"http://127.0.0.1:{port}/{index}/metrics" for index in range(ENDPOINTS)])
            books, store = load_all(), Store()
            began, cpu = time.monotonic(), time.process_time()
            for second in range(SECONDS):
                store.add(source.poll().samples)
                if second % 5 == 4:
                    diagnose(store, books, source.describe())
                time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            share = (time.process_time() - cpu) / (time.monotonic() - began)
            source.close()
        finally:
            server.kill()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{ENDPOINTS} endpoints at 1 Hz: {share:.0%} of one core, {memory:.0f} MB")


if __name__ == "__main__":
    bench_page()
    bench_fleet()
