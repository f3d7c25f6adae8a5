"""Pages are read as Prometheus reads them, whatever their labels hold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvscope.sources import _prometheus
from kvscope.sources._prometheus import Page, Parser, series_names
from probes.sample import Labels

PAGE = Path(__file__).parents[3] / "samples/scrapes/vllm-0.32.0.prom"
Series = tuple[str, Labels]


def parse(text: str) -> Page[Series]:
    return Parser(lambda name, labels: (name, labels)).parse(text)


def test_a_real_page_reads_as_the_reference_parser_reads_it() -> None:
    text = PAGE.read_text()
    ours = sorted((name, labels, value) for (name, labels), value in parse(text).rows)
    theirs = sorted(
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )
    assert ours == theirs


def test_labels_without_an_end_are_no_sample_even_of_a_series_that_was_seen() -> None:
    parser = Parser(lambda name, labels: (name, labels))
    assert len(parser.parse('a{b="c"} 1\na{b="c" 2\n').rows) == 1
    assert parser.parse('a{b="c" 2\n').bad_lines == 1


@pytest.mark.parametrize("space", [" ", "\t", "\xa0", "\x0c", "\x1c"])
def test_what_parts_value_and_time_is_the_same_for_a_series_and_for_its_name(space: str) -> None:
    text = f'a{{b="c"}} 8{space}50'
    assert [name for (name, _), _ in parse(text).rows] == series_names(text)


def test_a_second_page_reads_like_the_first_one() -> None:
    parser = Parser(lambda name, labels: (name, labels))
    text = PAGE.read_text()
    assert parser.parse(text).rows == parser.parse(text).rows


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("plain 1", "plain", {}, 1.0),
        ("plain 1.5e3 1700000000000", "plain", {}, 1500.0),
        ('a{b="c"} 2', "a", {"b": "c"}, 2.0),
        ('a{b="c"}2', "a", {"b": "c"}, 2.0),
        ('a{b="c"}\t2', "a", {"b": "c"}, 2.0),
        ('a{b="c",} 2', "a", {"b": "c"}, 2.0),
        ('a{ b = "c" , d="e" } 2', "a", {"b": "c", "d": "e"}, 2.0),
        ("a{} 2", "a", {}, 2.0),
        ('a{b="} 7"} 2', "a", {"b": "} 7"}, 2.0),
        ('a{b="x,y=\\"z\\""} 2', "a", {"b": 'x,y="z"'}, 2.0),
        ('a{b="back\\\\slash\\nline"} 2', "a", {"b": "back\\slash\\x0aline"}, 2.0),
        ('a{b="x # y"} 2', "a", {"b": "x # y"}, 2.0),
        ('a{b="c"} 2 1700000000.123', "a", {"b": "c"}, 2.0),
        ('a_bucket{le="1"} 5 # {trace_id="x"} 0.5 123', "a_bucket", {"le": "1"}, 5.0),
        ('a_bucket{le="1"} 5 # {trace_id="} y"} 0.5', "a_bucket", {"le": "1"}, 5.0),
        ('a_bucket{le="1"} 5 123 # {} 0.5', "a_bucket", {"le": "1"}, 5.0),
        ('{"my.metric",b="c"} 2', "my.metric", {"b": "c"}, 2.0),
        ("a +Inf", "a", {}, math.inf),
        ("a -Inf", "a", {}, -math.inf),
        ("a 1\r", "a", {}, 1.0),
    ],
)
def test_one_line(line: str, name: str, labels: dict[str, str], value: float) -> None:
    wanted = [((name, tuple(sorted(labels.items()))), value)]
    parser = Parser(lambda name, labels: (name, labels))
    assert parser.parse(line).rows == wanted
    assert parser.parse(line).rows == wanted, "the memo gives the same answer"


def test_not_a_number_is_a_number_on_a_page() -> None:
    assert math.isnan(parse("a NaN").rows[0][1])


@pytest.mark.parametrize("line", ["a", "a b", 'a{b="c} 1', "a{b=c} 1", "a{b} 1", "1a 2", "a 1 2 3", "{} 1", "\x00\x01"])
def test_a_bad_line_is_counted_and_the_rest_is_read(line: str) -> None:
    page = parse(f"good 1\n{line}\nalso_good 2\n")
    assert [name for (name, _), _ in page.rows] == ["good", "also_good"]
    assert page.bad_lines == 1
    assert page.first_bad == line


def test_types_are_kept_in_both_spellings() -> None:
    page = parse("# TYPE a_total counter\n# HELP a_total Help.\na_total 1\n# TYPE b gauge\n# UNIT b s\nb 1\n# EOF\n")
    assert page.types == {"a_total": "counter", "b": "gauge"}
    assert page.bad_lines == 0


def test_what_nobody_asked_for_is_never_parsed_again() -> None:
    asked: list[str] = []

    def resolve(name: str, labels: Labels) -> None:
        asked.append(name)

    parser = Parser(resolve)
    for _ in range(3):
        assert parser.parse('a{b="c"} 1\nd 2\n').rows == []
    assert asked == ["a", "d"]


def test_invented_labels_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_prometheus, "_MEMO_BYTES", 10_000)
    parser = Parser(lambda name, labels: (name, labels))
    page = parser.parse("\n".join(f'a{{request="{number}"}} 1' for number in range(1000)))
    assert len(page.rows) == 1000
    assert len(parser._memo.known) <= 50


def test_names_are_listed_once_and_garbage_is_passed_over() -> None:
    assert series_names('b 1\na{x="1"} 1\na{x="2"} 1\nnonsense line here and more\n<html>\n') == ["b", "a"]


def test_a_known_megabyte_reads_far_faster_than_with_the_reference_parser() -> None:
    lines = PAGE.read_text().splitlines()
    text = "\n".join(line.replace('engine="0"', f'engine="{copy}"') for copy in range(19) for line in lines)
    parser = Parser(lambda name, labels: (name, labels))
    parser.parse(text)
    ours = min(_seconds(lambda: parser.parse(text)) for _ in range(5))
    theirs = _seconds(lambda: list(text_string_to_metric_families(text)))
    assert len(text) > 1_000_000
    assert ours < theirs / 5, f"{ours * 1e3:.1f} ms against {theirs * 1e3:.1f} ms"


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


@pytest.mark.parametrize("line", ["x_total\t42.0", "x_total\t42.0 1234567", "x_total\t42.0\t1234567", "x_total  42.0"])
def test_a_line_is_read_the_same_the_second_time_wherever_its_tabs_stand(line: str) -> None:
    parser: Parser[str] = Parser(lambda name, labels: name)
    assert parser.parse(line).rows == parser.parse(line).rows == [("x_total", 42.0)]
