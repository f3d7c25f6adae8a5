"""Members that somebody else lists: read from each kind of list, told by name, and followed as they come and go."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.sources import open_target
from kvscope.sources.fleet import FleetSource
from kvscope.sources.service_discovery import DiscoveredSource, lookup_of
from tests.at_bound import Server

PAGE = Server(lambda _: 0.0).page(1.0)


class Answers(BaseHTTPRequestHandler):
    """Serves what ``pages`` has for a path."""

    pages: Mapping[str, str]

    def do_GET(self) -> None:
        body = self.pages.get(self.path.partition("?")[0], "")
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json" if body[:1] in "[{" else "text/plain")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def pages() -> Iterator[tuple[int, dict[str, str]]]:
    served: dict[str, str] = {"/metrics": PAGE, "/b/metrics": PAGE}
    handler = type("Handler", (Answers,), {"pages": served})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_port, served
        server.shutdown()
        thread.join()


def groups(port: int) -> list[dict[str, Any]]:
    here = [f"127.0.0.1:{port}"]
    return [{"targets": here}, {"targets": here, "labels": {"__metrics_path__": "/b/metrics", "pool": "chat"}}]


def test_a_file_of_targets_is_a_fleet_in_json_and_in_yaml(pages: tuple[int, dict[str, str]], tmp_path: Path) -> None:
    port, _ = pages
    (tmp_path / "engines.json").write_text(json.dumps(groups(port)))
    (tmp_path / "engines.yml").write_text(f"- targets: ['127.0.0.1:{port}']\n  labels: {{pool: chat}}\n")
    json_only = lookup_of(f"file_sd:{tmp_path}/*.json")()
    assert sorted(json_only) == [f"http://127.0.0.1:{port}/b/metrics", f"http://127.0.0.1:{port}/metrics"]
    assert list(lookup_of(f"file_sd:{tmp_path}/engines.yml")()) == [f"http://127.0.0.1:{port}/metrics"]
    source = open_target(f"file_sd:{tmp_path}/*.json")
    replicas: set[str | None] = set()
    for _ in range(20):
        # On a busy machine one of them may miss a round.
        replicas |= {dict(sample.labels).get("replica") for sample in source.poll().samples}
        if len(replicas) == 2:
            break
    source.close()
    assert len(replicas) == 2


def test_an_address_of_targets_is_read_as_prometheus_does(pages: tuple[int, dict[str, str]]) -> None:
    port, served = pages
    served["/targets"] = json.dumps(groups(port))
    assert len(lookup_of(f"http_sd+http://127.0.0.1:{port}/targets")()) == 2


def test_a_name_is_every_address_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(socket.AF_INET, 1, 6, "", ("10.0.0.1", 8000)), (socket.AF_INET6, 1, 6, "", ("fd00::1", 8000, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: rows)
    assert list(lookup_of("dns:vllm.svc:8000")()) == ["http://10.0.0.1:8000/metrics", "http://[fd00::1]:8000/metrics"]


def test_a_name_that_is_none_is_said_in_a_line() -> None:
    with pytest.raises(SourceError, match=f"dns:{'a' * 20}"):
        lookup_of(f"dns:{'a' * 300}:80")()


def test_a_service_is_every_host_and_port_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = pytest.importorskip("dns.resolver")
    import dns.rrset

    rrset = dns.rrset.from_text("_http._tcp.vllm.svc.", 5, "IN", "SRV", "0 5 8000 a.svc.", "0 5 8001 b.svc.")
    monkeypatch.setattr(resolver, "resolve", lambda *_args, **_kwargs: rrset)
    assert sorted(lookup_of("dns+srv:_http._tcp.vllm.svc")()) == [
        "http://a.svc:8000/metrics",
        "http://b.svc:8001/metrics",
    ]


def pod(name: str, phase: str = "Running", ip: str = "127.0.0.1", port: int = 8000, leaves: bool = False) -> Any:
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaves else {}
    ports = [{"name": "http", "containerPort": port}, {"name": "grpc", "containerPort": 1}]
    return {
        "metadata": {"name": name, "namespace": "llm", **gone},
        "spec": {"containers": [{"name": "vllm", "image": "vllm", "ports": ports}]},
        "status": {"phase": phase, "podIP": ip},
    }


def test_running_pods_that_a_selector_chooses_are_a_fleet_by_their_names(
    pages: tuple[int, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    port, served = pages
    pods = [pod("vllm-0", port=port), pod("vllm-1", "Pending"), pod("vllm-2", leaves=True)]
    served["/api/v1/namespaces/llm/pods"] = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": pods})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    assert lookup_of("k8s:llm/app=vllm")() == {f"http://127.0.0.1:{port}/metrics": "vllm-0"}
    assert list(lookup_of("k8s:llm/app=vllm,tier in (gpu):9000")()) == ["http://127.0.0.1:9000/metrics"]
    source = open_target("k8s:llm/app=vllm")
    samples = source.poll().samples
    source.close()
    assert {dict(one.labels).get("replica") for one in samples} == {"vllm-0"}


def test_members_come_and_go_and_a_list_that_cannot_be_had_changes_nothing(
    pages: tuple[int, dict[str, str]],
) -> None:
    port, _ = pages
    first, second = f"http://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{port}/b/metrics"
    answers: list[Any] = [{first: "a"}, {first: "a", second: "b"}, SourceError("the list is away"), {second: "b"}]
    now = [0.0]

    def lookup() -> dict[str, str]:
        found = answers.pop(0)
        if isinstance(found, SourceError):
            raise found
        return dict(found)

    source = DiscoveredSource("file_sd:x", lookup=lookup, clock=lambda: now[0], fleet=FleetSource)
    seen, told = [], []
    for expected in ({"a", "b"}, {"a", "b"}, {"b"}):
        now[0] += 30.0
        source.poll()
        assert source._thread is not None
        source._thread.join()
        poll = source.poll()
        told += poll.notices
        here = {dict(one.labels).get("replica") for one in poll.samples}
        for _ in range(20):
            # On a busy machine one of them may miss a round.
            if here >= expected:
                break
            here |= {dict(one.labels).get("replica") for one in source.poll().samples}
        seen.append(here)
    source.close()
    assert seen == [{"a", "b"}, {"a", "b"}, {"b"}]
    assert [line.split(": ")[-1] for line in told if "member" in line] == [
        "1 members came, 0 went; 2 now",
        "the list is away; the members known so far are watched on",
        "0 members came, 1 went; 1 now",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "file_sd:",
        "http_sd+ftp://x",
        "dns:name",
        "dns:name:port",
        "dns:name:0",
        f"dns:name:{9:09999}",
        "dns+srv:",
        "k8s:llm",
        "k8s:/a=b",
    ],
)
def test_a_list_that_is_none_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        lookup_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        '[{"targets": ["a\\u001b[31m:1"]}]',
        '[{"targets": ["a b:1"]}]',
        '[{"targets": "x"}]',
        '[{"targets": ["a/b"]}]',
        '[{"targets":',
        "[[" * 90,
    ],
)
def test_a_list_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError, match=r"x\.json"):
        lookup_of(f"file_sd:{tmp_path}/x.json")()
    with pytest.raises(SourceError, match="no such file"):
        lookup_of(f"file_sd:{tmp_path}/none.json")()


def test_an_address_of_a_prometheus_with_a_selector_is_no_pattern_of_files() -> None:
    with pytest.raises(SourceError, match="nothing listens"):
        open_target("prom+http://127.0.0.1:1?match=pool%3D%22chat%22")
