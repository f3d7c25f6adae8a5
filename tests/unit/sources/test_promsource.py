"""A Prometheus is asked a constant number of questions, whatever the fleet's size, and its answers become replicas."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.signals import replicas
from kvscope.sources._promapi import ENV_BASIC, ENV_BEARER, ask, data_of, parse_address
from kvscope.sources.fetch import TooLarge
from kvscope.sources.prometheus import PrometheusSource
from kvscope.store import Store

ADDRESS = "prom+http://host:9090?match=job%3D%22vllm%22&last=60s"


class Server:
    """Answers as a Prometheus that scrapes ``size`` engines every two seconds; the last of them has a queue."""

    def __init__(self, size: int, cores: int = 1) -> None:
        self.size, self.cores = size, cores
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.down = ""

    def __call__(self, path: str, form: Mapping[str, str] | None = None) -> Any:
        self.asked.append((path, form or {}))
        if path.startswith("targets"):
            return {"activeTargets": [{"scrapeInterval": "2s"}, {"scrapeInterval": "1s"}]}
        if path.startswith("label/"):
            return ["up", "vllm:num_requests_running", "vllm:num_requests_waiting", "process_start_time_seconds"]
        assert form is not None
        return {"result": list(self._series(float(form["start"]), float(form["end"]), float(form["step"])))}

    def _series(self, start: float, end: float, step: float) -> Any:
        times = [start + index * step for index in range(int((end - start) / step) + 1)]
        yield self._one("process_start_time_seconds", {"instance": "node:9100", "job": "node"}, times, 1)
        for index, core in itertools.product(range(self.size), range(self.cores)):
            instance = f"engine-{index}:8000"
            if instance == self.down:
                continue
            labels = {"instance": instance, "job": "vllm", "engine": str(core), "model_name": "m"}
            yield self._one("vllm:num_requests_running", labels, times, 2)
            yield self._one("vllm:num_requests_waiting", labels, times, 9 if index == self.size - 1 else 0)

    @staticmethod
    def _one(name: str, labels: dict[str, str], times: list[float], value: float) -> dict[str, Any]:
        return {"metric": {"__name__": name, **labels}, "values": [[t, str(value)] for t in times]}


def source_of(server: Server, *times: float) -> PrometheusSource:
    clock = itertools.chain(times, itertools.repeat(times[-1]))
    return PrometheusSource(ADDRESS, wall=lambda: next(clock), call=server)


@pytest.mark.parametrize("size", [1, 3, 200])
def test_the_number_of_questions_does_not_grow_with_the_fleet(size: int) -> None:
    server = Server(size)
    source = source_of(server, 1000.0)
    source.poll()
    assert [path.partition("?")[0] for path, _ in server.asked] == [
        "targets",
        "label/__name__/values",
        "query_range",
    ]
    assert source.describe().tags["replicas"] == str(size)


def test_history_is_there_at_the_first_poll_and_the_bad_one_is_named() -> None:
    store = Store()
    store.add(source_of(Server(3), 1000.0).poll().samples)
    assert len(store.series("sched.waiting", (("replica", "engine-2:8000"),))[0]) == 30
    (line,) = replicas.outliers(store, store.segments[0])
    assert line == ("replica engine-2:8000 stands out: requests waiting 9 against 0 requests, the median of 2 others")


def test_later_polls_ask_for_what_is_new_only_and_nothing_within_a_step() -> None:
    server = Server(2)
    source = PrometheusSource(ADDRESS, wall=iter([*[1000.0] * 4, 1001.0, 1006.5, 1006.5, 1006.5]).__next__, call=server)
    source.poll()
    assert source.poll().samples == []
    asked = len(server.asked)
    fresh = source.poll()
    assert len(server.asked) == asked + 1
    assert (server.asked[-1][1]["start"], server.asked[-1][1]["end"]) == ("1002.0", "1006.0")
    assert {sample.t for sample in fresh.samples} == {1002.0, 1004.0, 1006.0}


def test_the_selector_holds_the_known_names_that_are_there_and_the_users_match() -> None:
    server = Server(1)
    source_of(server, 1000.0)
    query = server.asked[-1][1]["query"]
    assert "vllm:num_requests_waiting" in query
    assert "up" not in query
    assert query.endswith(',job="vllm"}')


def test_engine_cores_of_one_instance_are_replicas_of_their_own() -> None:
    source = source_of(Server(1, cores=2), 1000.0)
    names = {dict(sample.labels)["replica"] for sample in source.poll().samples}
    assert names == {"engine-0:8000#0", "engine-0:8000#1"}


def test_a_replica_that_vanishes_is_told() -> None:
    server = Server(2)
    clock = iter([*[1000.0] * 4, *[1010.0] * 9])
    source = PrometheusSource(ADDRESS, wall=lambda: next(clock), call=server)
    source.poll()
    server.down = "engine-1:8000"
    assert "engine-1:8000: no value any more" in source.poll().notices
    assert source.describe().note.startswith("2 replicas, 1 silent")


def test_no_engine_behind_a_prometheus_is_an_error_that_says_where_it_looked() -> None:
    with pytest.raises(SourceError, match='no engine in the last 60 s where job="vllm"'):
        source_of(Server(0), 1000.0)


def test_a_prometheus_that_fails_for_a_while_is_told_once() -> None:
    server = Server(1)
    clock = itertools.count(1000.0, 10.0)
    answers = {"ok": True}

    def answer(*asked: Any) -> Any:
        if not answers["ok"]:
            raise SourceError("http://host:9090: refused")
        return server(*asked)

    source = PrometheusSource(ADDRESS, wall=lambda: next(clock), call=answer)
    source.poll()
    answers["ok"] = False
    assert source.poll().notices == ("http://host:9090: refused",)
    assert source.poll().notices == ()
    answers["ok"] = True
    assert source.poll().samples


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prom+http://user:secret@host:9090", "basic_file"),
        ("prom+http://host:9090?mach=x", "did you mean 'match'"),
        ("prom+http://host:9090?step=0", "expected seconds"),
        ("prom+http://", "expected prom"),
        ("prom+http://host:9090?bearer_file=/nowhere/token", "No such file"),
        ("prom+https://host?ca=/nowhere/ca.pem", "TLS files"),
    ],
)
def test_a_wrong_address_is_a_usage_error_without_secrets(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_address(text, {})
    assert "secret" not in str(caught.value)


def test_who_we_are_comes_from_a_file_or_the_environment(tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    by_file = parse_address(f"prom+http://host:9090/prefix/?bearer_file={token}", {})
    assert by_file.base == "http://host:9090/prefix"
    assert by_file.headers == {"Authorization": "Bearer abc"}
    assert "abc" not in repr(by_file)
    assert parse_address("prom+http://host", {ENV_BASIC: "u:p"}).headers == {"Authorization": "Basic dTpw"}
    with pytest.raises(UsageError, match="give one of them"):
        parse_address("prom+http://host", {ENV_BASIC: "u:p", ENV_BEARER: "t"})
    with pytest.raises(UsageError, match="user:password"):
        parse_address("prom+http://host", {ENV_BASIC: "u"})


def test_tls_may_be_unchecked_only_when_asked_for() -> None:
    checked, unchecked = (
        parse_address("prom+https://host", {}).tls,
        parse_address("prom+https://host?insecure=1", {}).tls,
    )
    assert checked is not None
    assert unchecked is not None
    assert checked.check_hostname
    assert not unchecked.check_hostname


@pytest.mark.parametrize(
    ("text", "said"),
    [("<html>", "no JSON"), ("[]", "not an object"), ('{"status":"error","error":"parse error"}', "parse error")],
)
def test_an_answer_of_somebody_else_is_an_error(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        data_of(text, "http://host/api/v1/x")


def test_the_api_is_asked_over_http_by_post_with_who_we_are() -> None:
    seen: list[tuple[str, str, str | None, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            seen.append((self.command, self.path, self.headers.get("Authorization"), body))
            text = b'{"status":"success","data":{"result":[]}}'
            self.send_response(200 if self.headers.get("Authorization") else 401)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            where = f"prom+http://127.0.0.1:{http.server_port}/p"
            call = ask(parse_address(where, {ENV_BASIC: "u:p"}), 5.0)
            assert call("query_range", {"query": '{a="b"}'}) == {"result": []}
            with pytest.raises(SourceError, match="HTTP 401"):
                ask(parse_address(where, {}), 5.0)("targets")
        finally:
            http.shutdown()
            thread.join()
    assert seen[0] == ("POST", "/p/api/v1/query_range", "Basic dTpw", "query=%7Ba%3D%22b%22%7D")
    assert seen[1][0] == "GET"


CAPTURED = Path(os.environ.get("KVSCOPE_CAPTURES", "")) / "prometheus_api"


@pytest.mark.skipif(not CAPTURED.is_dir(), reason="KVSCOPE_CAPTURES names no folder with prometheus_api")
def test_the_captured_answers_of_a_prometheus_name_the_server_with_the_queue() -> None:
    def call(path: str, form: Mapping[str, str] | None = None) -> Any:
        name = "targets" if path.startswith("targets") else "range_raw_gauges" if form else "label_values_name"
        return json.loads((CAPTURED / f"{name}.json").read_text())["response"]["data"]

    source = PrometheusSource("prom+http://127.0.0.1:9390", wall=lambda: 1795958580.0, call=call)
    store = Store()
    store.add(source.poll().samples)
    lines = replicas.outliers(store, store.segments[-1])
    assert lines
    assert all(line.startswith("replica 127.0.0.1:8651 stands out") for line in lines)
    assert "requests waiting" in " ".join(lines)


def test_a_fleet_too_large_for_one_answer_is_read_without_buckets_and_it_is_said() -> None:
    server = Server(2)
    refused: list[str] = []

    def call(path: str, form: Mapping[str, str] | None = None) -> Any:
        if path.startswith("label/"):
            return ["vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket"]
        if form and "_bucket" in form["query"]:
            refused.append(path)
            raise TooLarge("http://host: the page is larger than 64 MiB")
        return server(path, form)

    source = PrometheusSource(ADDRESS, wall=lambda: 1000.0, call=call)
    poll = source.poll()
    assert len(refused) == 1
    assert poll.samples
    assert any("quantiles are unknown" in notice for notice in poll.notices)


def test_a_gpu_exporter_in_the_same_prometheus_is_read_and_is_no_replica() -> None:
    server = Server(2)

    def call(path: str, form: Mapping[str, str] | None = None) -> Any:
        found = server(path, form)
        if path.startswith("label/"):
            return [*found, "DCGM_FI_DEV_GPU_UTIL"]
        if form:
            labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "instance": "gpu:9400", "gpu": "0"}
            found["result"].append({"metric": labels, "values": [[float(form["end"]), "50"]]})
        return found

    source = PrometheusSource(ADDRESS, wall=lambda: 1000.0, call=call)
    samples = source.poll().samples
    assert [sample.value for sample in samples if sample.metric == "gpu.util"] == [0.5]
    assert source.describe().tags["replicas"] == "2"
    assert source.describe().engine == "vllm"
