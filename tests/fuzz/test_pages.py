"""Whatever stands on a page: samples or one clear error, never a traceback, never a number that is none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvscope.errors import KvscopeError
from kvscope.sources._page import PageReader, PageResult
from kvscope.sources._pagelog import PageLog
from kvscope.sources._prometheus import Parser, Shapes, series_names, split_line
from kvscope.sources._reader import reader_for
from kvscope.sources.maps import sglang, vllm
from kvscope.store import Store
from probes.catalog import metric_of

SCRAPES = Path(__file__).parents[2] / "samples" / "scrapes"
PAGES = [path.read_text().split("\n") for path in sorted(SCRAPES.glob("*.prom"))]
SHORT = [lines[:40] for lines in PAGES]
NAMES = sorted({entry.name for entry in (*vllm.MAP, *sglang.MAP)})

values = st.one_of(
    st.floats().map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e309", "-1", "0x10", "1_000", "", "1 2 3", '1.0 # {a="b"} 1', "²"]),
    st.integers(-(10**30), 10**30).map(str),
)
labels = st.dictionaries(
    st.sampled_from(["le", "engine", "model_name", "source", "tp_rank", "mode", "num_gpu_blocks", "block_size", "x"]),
    st.text(max_size=8),
    max_size=4,
).map(lambda pairs: "{" + ",".join(f'{key}="{text}"' for key, text in pairs.items()) + "}" if pairs else "")
names = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from([name + "_bucket", name + "_sum", name + "_count"])),
    st.text(max_size=12),
)
lines = st.builds("{}{} {}".format, names, labels, values)
made_pages = st.lists(st.one_of(lines, st.text(max_size=40)), max_size=30).map("\n".join)


@st.composite
def damaged_pages(draw: st.DrawFn) -> str:
    """A real page with characters of some lines replaced, lines repeated, shuffled or cut."""
    page = list(SHORT[draw(st.integers(0, len(SHORT) - 1))])
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(page) - 1))
        line = page[at]
        where = draw(st.integers(0, len(line)))
        page[at] = line[:where] + draw(st.text(max_size=4)) + line[where + draw(st.integers(0, 5)) :]
    if draw(st.booleans()):
        page += page[draw(st.integers(0, 8)) :: -1]
    text = "\n".join(page)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def check(result: PageResult) -> None:
    store = Store()
    store.add(result.samples)
    for sample in result.samples:
        metric = metric_of(sample.metric)
        assert metric is not None
        assert math.isfinite(sample.value)
        if metric.kind == "counter":
            assert sample.value >= 0
        if sample.metric.endswith(".bucket"):
            assert not math.isnan(float(dict(sample.labels)["le"]))


@given(st.lists(st.one_of(made_pages, damaged_pages()), min_size=1, max_size=3))
@example(['vllm:time_to_first_token_seconds_bucket{le="x"} 1\nvllm:num_requests_running 1'])
@example(['vllm:time_to_first_token_seconds_bucket{le="NaN"} 1'])
@example(["vllm:num_requests_running{\nvllm:num_requests_running 1"])
@example(["vllm:num_requests_running 1e308\n" * 40])
@example(['vllm:cache_config_info{block_size="inf",num_gpu_blocks="-3",kv_cache_size_tokens="nan"} 1'])
def test_pages_of_one_engine_one_after_another(pages: list[str]) -> None:
    for engine in (vllm, sglang):
        reader = PageReader(engine)
        for t, text in enumerate(pages):
            check(reader.read(text, float(t)))


@given(st.one_of(made_pages, damaged_pages(), st.text(max_size=200)))
def test_a_page_of_anybody_is_read_or_refused(text: str) -> None:
    try:
        log = PageLog(reader_for(text, "here"))
    except KvscopeError:
        return
    log.page(text, 1.0)
    log.page(text, 2.0)
    log.take()


@given(st.one_of(made_pages, damaged_pages()))
@example("vllm:generation_tokens_total256000.0\nvllm:num_requests_running 1")
def test_reading_twice_gives_the_same_and_remembers_what_it_saw(text: str) -> None:
    parser: Parser[object] = Parser(lambda name, found: (name, found))
    first, second = parser.parse(text), parser.parse(text)
    assert [key for key, _ in first.rows] == [key for key, _ in second.rows]
    assert first.bad_lines == second.bad_lines
    assert {name for (name, _), _ in first.rows} == set(series_names(text))  # type: ignore[misc]


@given(st.lists(st.one_of(lines, st.text(alphabet='ab:{}=",. \t\\#', max_size=30)), max_size=8))
@example(['a{b="1",b="2"} 1', 'a{b="1"c="2"} 1', 'a{b="1",} 1', 'a{b="x} y"} 1', 'a{b="1"} 1 # {c="2"} 3'])
def test_a_series_split_quickly_is_the_one_split_slowly(page: list[str]) -> None:
    shapes = Shapes()
    for line in page:
        head, brace, _ = line.rpartition("} ")
        found = shapes.split(head) if brace else None
        if found is not None:
            assert found == split_line(head + "} 1")[:2]


def test_labels_without_end_do_not_make_the_memory_grow_without_end() -> None:
    parser: Parser[int] = Parser(lambda name, found: 1)
    for index in range(40):
        parser.parse("".join(f'vllm:x{{a="{index}-{series}-{"a" * 900}"}} 1\n' for series in range(2000)))
    assert 0 < parser._memo.bytes <= 48 << 20
    assert len(parser._memo.known) < 48_000


@pytest.mark.parametrize("lines", PAGES, ids=range(len(PAGES)))
def test_every_whole_sample_page_is_read_without_a_bad_line(lines: list[str]) -> None:
    parser: Parser[int] = Parser(lambda name, found: 1)
    assert parser.parse("\n".join(lines)).bad_lines == 0
