"""What began and what ended: once each, whatever lies between; and who is told of it how."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvscope.alerts import DOWN, Event, Hysteresis, Recent, Rhythm, Watched
from kvscope.cli import run
from kvscope.delivery import EXPIRES_S, RESEND_S, Alertmanager, Courier, Program, Webhook, checked_url
from kvscope.errors import SourceError, UsageError
from kvscope.playbook import load_all
from kvscope.sources import open_target
from kvscope.sources.source import Poll
from probes.sample import Sample
from tests.at_bound import BOUND, START_S, PageSource, Server

RULE = "admission-capped"
BOOKS = tuple(book for book in load_all() if book.id == RULE)
FAST = Rhythm(every_s=20.0, before_s=60.0)


def watched(share: Callable[[float], float], seconds: float, seed: int = 1, folder: Path | None = None) -> list[Event]:
    source = PageSource(Server(share, seed))
    one = Watched("http://server", lambda: source, BOOKS, FAST, clock=lambda: START_S + source.t, folder=folder)
    events: list[Event] = []
    while source.t < seconds:
        events += one.poll()
    return [event for event in events if event.id == RULE]


@pytest.mark.parametrize("seed", [11, 12])
def test_noise_around_the_bound_is_one_finding_that_ends_when_it_is_gone(seed: int, tmp_path: Path) -> None:
    events = watched(lambda t: 0.9 if t < 150 else BOUND if t < 750 else 0.0, 1050, seed, tmp_path)
    assert [event.event for event in events] == ["began", "ended"]
    began, ended = events
    assert began.t_s - START_S < 150
    assert ended.t_s - START_S > 750
    with closing(open_target(began.recording)) as source:
        kept = source.poll().samples
    assert 30 < kept[-1].t - kept[0].t <= 61


def test_what_is_seen_for_less_than_the_time_it_must_hold_is_no_finding() -> None:
    turning = Hysteresis(hold_s=30, clear_s=60)
    answers = ["yes", "yes", "no", "yes", "unknown", "yes", "yes", "no"]
    assert not any(turning.turns("x", 10.0 * n, answer) for n, answer in enumerate(answers))  # type: ignore[arg-type]


def test_doubt_neither_begins_nor_ends_anything() -> None:
    turning = Hysteresis(hold_s=10, clear_s=10)
    assert [turning.turns("x", t, "yes") for t in (0, 10)] == [False, True]
    assert not any(turning.turns("x", t, "unknown") for t in range(20, 500, 10))
    assert turning.active() == {"x": 0}
    assert [turning.turns("x", t, "no") for t in (500, 510)] == [False, True]
    assert turning.active() == {}


def test_one_that_comes_back_soon_must_stay_away_twice_as_long() -> None:
    turning = Hysteresis(hold_s=0, clear_s=10)
    lengths, t = [], 0.0
    for _ in range(3):
        assert turning.turns("x", t, "yes")
        gone = t + 1
        t = gone
        while not turning.turns("x", t, "no"):
            t += 1
        lengths.append(t - gone)
        t += 1
    assert lengths == [10, 20, 40]


def test_counters_and_settings_said_before_the_window_still_hold_and_gauges_do_not() -> None:
    recent = Recent(20.0)
    said = {"config.max_running": 4.0, "tokens.generated": 7.0, "sched.waiting": 9.0}
    recent.add([Sample(name, value, 1.0) for name, value in said.items()])
    for t in range(10, 60):
        recent.add([Sample("sched.running", 1.0, float(t))])
    found = recent.since(50.0)
    assert {one.metric: one.value for one in found if one.metric != "sched.running"} == {
        "config.max_running": 4,
        "tokens.generated": 7,
    }
    assert min(one.t for one in found) == pytest.approx(50.0, abs=0.01)
    assert [one.t for one in found] == sorted(one.t for one in found)


class Silent:
    """An engine that is away from 100 to 200 s."""

    def __init__(self, source: PageSource, clock: list[float]) -> None:
        self._source, self._clock = source, clock

    def describe(self) -> Any:
        return self._source.describe()

    def poll(self) -> Poll:
        if 100 <= self._clock[0] < 200:
            raise SourceError("no answer")
        return self._source.poll()

    def close(self) -> None:
        """Nothing is held open."""


def test_a_target_that_does_not_answer_is_told_and_tried_again() -> None:
    clock = [0.0]
    source = PageSource(Server(lambda _: 0.0))

    def open_it() -> Silent:
        if 100 <= clock[0] < 200:
            raise SourceError("refused")
        return Silent(source, clock)

    one = Watched("http://server", open_it, BOOKS, Rhythm(every_s=30.0), clock=lambda: clock[0])
    events: list[Event] = []
    for clock[0] in range(300):
        events += one.poll()
    assert [(event.event, event.id) for event in events] == [("began", DOWN), ("ended", DOWN)]
    assert "refused" in events[0].says
    assert 130 <= events[0].t_s <= 150
    assert 200 <= events[1].t_s <= 216


class Dies(PageSource):
    """An engine whose process ends with its last words at 60 s."""

    def poll(self) -> Poll:
        poll = super().poll()
        return poll if self.t < 60 else Poll(poll.samples, ended=True, silent="its process ended")


def test_the_last_words_of_a_process_are_judged_and_another_may_take_its_place() -> None:
    clock, opened = [0.0], []

    def open_it() -> PageSource:
        opened.append(clock[0])
        if len(opened) == 2:
            raise SourceError("no such process")
        return Dies(Server(lambda _: 0.9)) if len(opened) == 1 else PageSource(Server(lambda _: 0.0))

    rhythm = Rhythm(every_s=10.0, hold_s=5.0)
    one = Watched("4711", open_it, BOOKS, rhythm, clock=lambda: clock[0])
    events: list[Event] = []
    for clock[0] in range(120):
        events += one.poll()
    told = [(event.event, event.id) for event in events]
    assert told == [("began", RULE), ("began", DOWN), ("ended", DOWN)]
    assert opened == [0, 74, 89]


EVENT: dict[str, Any] = {
    "event": "began",
    "t_s": 1000.0,
    "began_s": 970.0,
    "target": "http://server; touch pwned $(touch pwned)",
    "id": RULE,
    "title": "Requests queue",
    "verdict": "likely",
    "says": "the cap",
    "recording": "",
    "finding": {"fix": ["raise it"]},
}


def test_a_program_gets_the_event_on_its_input_and_no_word_of_it_reaches_a_shell(tmp_path: Path) -> None:
    script = "import json,os,sys; got = [sys.argv[1:], json.load(sys.stdin), os.environ['KVSCOPE_TARGET']]; "
    script += "open('got', 'w').write(json.dumps(got))"
    program = Program([sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {script}", "$HOME;x"])
    program.send(EVENT)
    arguments, event, target = json.loads((tmp_path / "got").read_text())
    assert (arguments, event, target) == (["$HOME;x"], EVENT, EVENT["target"])
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(UsageError, match="no such program"):
        Program(["/no/such/program"]).send(EVENT)


class Taker(BaseHTTPRequestHandler):
    """Takes down what is posted; refuses the first ``refuse`` times."""

    got: list[tuple[str, Any, str | None]]
    refuse = 0
    all: threading.Event
    """Set when three came."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused, type(self).refuse = self.refuse > 0, max(0, self.refuse - 1)
        if not refused:
            text = json.loads(body) if self.headers["Content-Type"] == "application/json" else body
            self.got.append((self.path, text, self.headers["Authorization"]))
        if len(self.got) == 3:
            self.all.set()
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def taker() -> Iterator[tuple[str, type[Taker]]]:
    handler = type("Handler", (Taker,), {"got": [], "all": threading.Event()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_an_alertmanager_is_told_again_while_it_holds_and_of_the_end(taker: tuple[str, type[Taker]]) -> None:
    url, handler = taker
    now = [1000.0]
    manager = Alertmanager(url, {"Authorization": "Bearer t"}, lambda: now[0], {"severity": "page"})
    manager.send(EVENT)
    manager.tick()
    now[0] += RESEND_S
    manager.tick()
    manager.send(EVENT | {"event": "ended", "t_s": now[0] + 5})
    now[0] += RESEND_S
    manager.tick()
    assert [path for path, _, _ in handler.got] == ["/api/v2/alerts"] * 3
    assert {token for _, _, token in handler.got} == {"Bearer t"}
    first, again, last = (body[0] for _, body, _ in handler.got)
    assert first["labels"] == again["labels"] == last["labels"]
    assert first["labels"]["severity"] == "page"
    assert first["startsAt"] == last["startsAt"] == "1970-01-01T00:16:10.000Z"
    assert first["annotations"]["fix"] == "raise it"
    assert first["endsAt"] == f"1970-01-01T00:{16 + int(EXPIRES_S // 60)}:40.000Z"
    assert last["endsAt"] == "1970-01-01T00:17:45.000Z"


def test_what_did_not_come_through_is_sent_again_in_order(taker: tuple[str, type[Taker]]) -> None:
    url, handler = taker
    handler.refuse = 1
    said: list[str] = []
    courier = Courier(Webhook(f"{url}/hook", {}), said.append, pause_s=0.01)
    for number in range(3):
        courier.send(EVENT | {"t_s": number})
    assert handler.all.wait(20.0)
    courier.close()
    assert [body["t_s"] for _, body, _ in handler.got] == [0, 1, 2]
    assert len(said) == 1
    assert "503" in said[0]
    assert "hook" not in said[0]


@pytest.mark.parametrize("url", ["http://10.0.0.1/x", "http://alerts.example.org", "https://[2001:db8::1]/"])
def test_another_machine_is_told_nothing_unless_it_may_be(url: str) -> None:
    with pytest.raises(UsageError, match="--allow-remote"):
        checked_url(url, "--webhook", remote=False)
    assert checked_url(url, "--webhook", remote=True) == url


@pytest.mark.parametrize("url", ["ftp://localhost/", "http://u:p@localhost/", "localhost:9093", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        checked_url(url, "--webhook", remote=True)


def test_a_recording_is_watched_to_its_end_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    capture = Path(__file__).parents[2] / "samples/captures/admission-limited/pages.jsonl.gz"
    assert run(["watch", str(capture), "--hold", "5", "--every", "5", "--window", "30"]) == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event"], one["id"]) for one in told] == [("began", RULE)]
    assert told[0]["finding"]["fix"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x:1", "--on", "probable"], "fail_on"),
        (["x:1", "--every", "0"], "every"),
        (["x:1", "--webhook", "http://198.51.100.1/"], "--allow-remote"),
        (["x:1", "--exec"], "PROGRAM"),
        (["x:1", "x:1"], "twice"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_signals_and_findings_go_out_over_otlp(taker: tuple[str, type[Taker]]) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from kvscope.telemetry import Telemetry

    url, handler = taker
    otel = Telemetry(url, {}, every_s=3600.0)
    otel.update("http://server", {"waiting": (7.0, 0.5, ""), "kv_usage_ratio": (0.4, 0.0, "ratio")})
    otel.send(EVENT)
    otel.close()
    bodies = {path: body for path, body, _ in handler.got}
    sent = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"])
    metrics = {one.name: one for one in sent.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["kvscope.waiting"].gauge.data_points[0].as_double == 7.0
    assert metrics["kvscope.kv_usage_ratio"].unit == "1"
    held = {one.key: one.value.string_value for one in metrics["kvscope.finding"].gauge.data_points[0].attributes}
    assert held == {"target": EVENT["target"], "id": RULE, "verdict": "likely"}
    record = ExportLogsServiceRequest.FromString(bodies["/v1/logs"]).resource_logs[0].scope_logs[0].log_records[0]
    assert record.body.string_value == EVENT["title"]
