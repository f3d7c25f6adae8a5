"""Every source speaks the catalogue's language, and every name it claims to know is really on a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvscope.sources import maps, open_target
from kvscope.sources._page import PageReader
from kvscope.sources._prometheus import Parser
from kvscope.sources.maps._base import Entry
from kvscope.store import Store
from probes.catalog import CATALOG, metric_of
from probes.sample import Labels

SAMPLES = Path(__file__).parents[2] / "samples"
PAGE = SAMPLES / "scrapes/vllm-0.32.0.prom"
VERSION = (0, 32)
CATALOGUE_UNITS = {"rows": "accesses"}
"""Units of a page that count the same thing under another name."""


def entries() -> Iterator[tuple[str, Entry]]:
    for name in maps.names():
        for entry in maps.load(name).MAP:
            yield name, entry


def files() -> list[Path]:
    found = [
        *SAMPLES.glob("scrapes/*.prom"),
        *SAMPLES.glob("scrapes/*.jsonl*"),
        *SAMPLES.glob("recordings/**/*.jsonl*"),
    ]
    return sorted([*found, *SAMPLES.glob("recordings/**/*.db")])


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def here(entry: Entry) -> bool:
    """Whether the version and set-up that the saved page comes from has this entry."""
    if entry.condition or (entry.until and version(entry.until) < VERSION):
        return False
    return not entry.since or version(entry.since) <= VERSION


@pytest.mark.parametrize("entry", [entry for name, entry in entries() if name == "vllm"], ids=lambda entry: entry.name)
def test_a_vllm_name_is_on_the_page_with_its_kind_or_belongs_to_another_version(entry: Entry) -> None:
    page = Parser(lambda name, labels: (name, labels)).parse(PAGE.read_text())
    names = {name for (name, _), _ in page.rows}
    shown = f"{entry.name}_count" if entry.kind == "histogram" else entry.name
    assert (shown in names) == here(entry)
    if shown not in names:
        return
    family = entry.name.removesuffix("_count") if entry.name.endswith("_total_count") else entry.name
    wanted = "histogram" if family != entry.name else "gauge" if entry.kind == "info" else entry.kind
    assert page.types[family] == wanted
    series: list[Labels] = [labels for (name, labels), _ in page.rows if name == shown]
    assert any(set(entry.where) <= set(labels) for labels in series), f"no series with {entry.where}"


@pytest.mark.parametrize(("name", "entry"), list(entries()), ids=lambda value: getattr(value, "name", value))
def test_an_entry_means_a_metric_of_the_catalogue_of_the_same_kind_and_unit(name: str, entry: Entry) -> None:
    if entry.kind == "info":
        return
    metric = CATALOG[entry.metric]
    assert {"counter": "counter", "gauge": "gauge", "histogram": "observation"}[entry.kind] == metric.kind
    assert CATALOGUE_UNITS.get(entry.unit, entry.unit) == metric.unit or entry.scale != 1
    assert set(entry.keep) <= set(metric.labels)


@pytest.mark.parametrize("name", maps.names())
def test_a_map_recognises_its_own_names_and_nobody_elses(name: str) -> None:
    engine = maps.load(name)
    own = [entry.name for entry in engine.MAP if not entry.name.startswith("process_")]
    assert maps.detect(own) is engine
    assert maps.detect(["node_load1", "process_start_time_seconds", "go_goroutines"]) is None


@pytest.mark.parametrize("name", maps.names())
def test_an_old_name_gives_way_to_one_that_the_same_map_knows(name: str) -> None:
    known = {entry.name: entry for entry in maps.load(name).MAP}
    for entry in known.values():
        assert not entry.unless or known[entry.unless].metric == entry.metric


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_sample_file_opens_and_speaks_the_catalogues_language(path: Path) -> None:
    with closing(open_target(str(path))) as source:
        assert source.describe().engine
        poll = source.poll()
    assert poll.ended
    assert poll.samples
    last: dict[tuple[str, Labels], float] = {}
    for sample in poll.samples:
        metric = metric_of(sample.metric)
        assert metric is not None, sample.metric
        assert {label for label, _ in sample.labels} <= {*metric.labels, "le"}, sample
        assert sample.t >= last.get((sample.metric, sample.labels), sample.t)
        last[sample.metric, sample.labels] = sample.t


def test_a_reset_is_a_restart_and_no_rate_is_negative() -> None:
    text = PAGE.read_text()
    lower = "\n".join(
        line.rpartition(" ")[0] + " 1.0" if line.startswith("vllm:generation_tokens_total{") else line
        for line in text.split("\n")
    )
    reader = PageReader(maps.load("vllm"))
    store = Store()
    restarts = []
    for t, page in enumerate([text, text, lower, lower]):
        result = reader.read(page, float(t))
        store.add(result.samples)
        restarts.append(result.restarted)
    assert restarts == [False, False, True, False]
    _, values = store.series("tokens.generated")
    assert values[2] == 1.0
