"""A live page is polled through gaps and restarts; only the first scrape may fail for good."""

from __future__ import annotations

import itertools

import pytest

from kvscope.errors import SourceError, UsageError
from kvscope.sources.fetch import FetchError
from kvscope.sources.scrape import ScrapeSource, is_url, page_url

PAGE = "vllm:num_requests_running 1\nvllm:generation_tokens_total {}\n"


class Engine:
    """Answers scrapes from a list; a string is a page, an exception is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, url: str, timeout_s: float) -> str:
        self.asked.append(url)
        if not url.endswith("/metrics"):
            raise FetchError(f"{url}: answers HTTP 404")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def source_of(*answers: str | Exception) -> ScrapeSource:
    seconds = itertools.count(1000)
    return ScrapeSource("host:8000", wall=lambda: float(next(seconds)), get=Engine(*answers))


def test_the_first_scrape_may_take_longer_than_the_later_ones() -> None:
    waited = []

    def get(url: str, timeout_s: float) -> str:
        waited.append(timeout_s)
        return PAGE.format(1)

    source = ScrapeSource("host:8000", timeout_s=3.0, first_timeout_s=10.0, get=get)
    source.poll()
    source.poll()
    assert waited == [10.0, *[3.0] * (len(waited) - 1)]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("host:8000", "http://host:8000/metrics"),
        ("http://host:8000", "http://host:8000/metrics"),
        ("http://host:8000/", "http://host:8000/metrics"),
        ("host:8000/metrics", "http://host:8000/metrics"),
        ("https://host/prometheus/metrics", "https://host/prometheus/metrics"),
        ("[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_may_be_written_short(text: str, url: str) -> None:
    assert is_url(text)
    assert page_url(text) == url


@pytest.mark.parametrize("text", ["ftp://host/x", "http://", "host:99999", "http://user:secret@host:1/metrics"])
def test_what_is_no_address_is_a_usage_error_without_the_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        page_url(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["run.jsonl", "./a/b.db", "1234", "C:thing"])
def test_a_file_or_a_pid_is_no_address(text: str) -> None:
    assert not is_url(text)


def test_the_first_scrape_must_succeed() -> None:
    with pytest.raises(SourceError, match="nothing listens"):
        source_of(FetchError("http://host:8000/metrics: nothing listens there"))
    with pytest.raises(SourceError, match="go_goroutines"):
        source_of("go_goroutines 7\n")


def test_the_first_poll_gives_the_first_scrape_and_the_next_a_new_one() -> None:
    source = source_of(PAGE.format(5), PAGE.format(7))
    first, second = source.poll(), source.poll()
    assert [s.value for s in first.samples if s.metric == "tokens.generated"] == [5]
    assert [s.value for s in second.samples if s.metric == "tokens.generated"] == [7]
    assert second.samples[0].t > first.samples[0].t


def test_a_gap_is_told_once_and_its_end_too() -> None:
    down = FetchError("http://host:8000/metrics: connection refused")
    source = source_of(PAGE.format(5), down, down, PAGE.format(6))
    source.poll()
    first, second, third = source.poll(), source.poll(), source.poll()
    assert first.samples == []
    assert "connection refused" in first.notices[0]
    assert second.notices == ()
    assert "2 scrapes failed" in third.notices[0]
    assert third.samples
    assert not third.ended
    assert source.describe().alive


def test_a_page_of_somebody_else_in_the_middle_is_a_gap() -> None:
    source = source_of(PAGE.format(5), "<html>502 Bad Gateway</html>")
    source.poll()
    poll = source.poll()
    assert poll.samples == []
    assert "no answer since" in poll.notices[0]
    assert not source.describe().alive


def test_a_restart_cuts_the_stream() -> None:
    source = source_of(PAGE.format(500), PAGE.format(3), PAGE.format(4))
    source.poll()
    poll = source.poll()
    assert [mark.name for mark in poll.marks] == ["restart-1"]
    assert poll.marks[0].t == poll.samples[0].t
    assert poll.marks[0].tags["engine"] == "vllm"
    assert source.poll().marks == ()


def test_a_wall_clock_set_back_does_not_send_samples_back() -> None:
    times = iter([100.0, 50.0])
    source = ScrapeSource("host:1", wall=lambda: next(times), get=Engine(PAGE.format(1), PAGE.format(2)))
    first, second = source.poll(), source.poll()
    assert second.samples[0].t == first.samples[0].t == 100
