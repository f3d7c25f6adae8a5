"""Every source speaks the catalogue's language, and every name it claims to know is really on a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from kvscope.sources import maps, open_target
from kvscope.sources._page import PageReader
from kvscope.sources._prometheus import Page, Parser
from kvscope.sources.mapping import Entry
from kvscope.store import Store
from probes.catalog import CATALOG, metric_of
from probes.sample import Labels

SAMPLES = Path(__file__).parents[2] / "samples"
SCRAPES = SAMPLES / "scrapes"
PAGE = SCRAPES / "vllm-0.32.0.prom"
CATALOGUE_UNITS = {"rows": "accesses"}
"""Units of a page that count the same thing under another name."""
Raw = tuple[str, Labels]
KNOWN = [name for name in maps.names() if name != "kvscope"]
"""The maps that are lists; our own engine's is computed from the catalogue."""


def entries(*only: str) -> Iterator[tuple[str, Entry]]:
    for name in only or maps.names():
        for entry in maps.load(name).MAP:
            yield name, entry


def files() -> list[Path]:
    found = [
        *(path for path in SCRAPES.glob("*.prom") if maps.load(path.name.partition("-")[0]).ROLE != "machine"),
        *SCRAPES.glob("*.jsonl*"),
        *SAMPLES.glob("recordings/**/*.jsonl*"),
        *SAMPLES.glob("traces/*.json.gz"),
    ]
    return sorted([*found, *SAMPLES.glob("recordings/**/*.db")])


@cache
def pages(name: str) -> dict[str, Page[Raw]]:
    """Version → the parsed sample page of a map; the file is called ``MAP-VERSION.prom``."""
    found = {}
    for path in sorted(SCRAPES.glob(f"{name}-*.prom")):
        parser: Parser[Raw] = Parser(lambda series, labels: (series, labels))
        found[path.stem.partition("-")[2]] = parser.parse(path.read_text())
    return found


def version(text: str) -> tuple[int, ...] | None:
    """A version as numbers; None where a page is named after a commit or a part of the system."""
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"[0-9]+(\.[0-9]+)+", text) else None


def shown(entry: Entry) -> str:
    return f"{entry.name}_count" if entry.kind == "histogram" else entry.name


def family(entry: Entry, types: dict[str, str]) -> str:
    """The name a page declares the type of: without the part of a histogram that an entry reads as a counter."""
    for part in ("_count", "_sum"):
        if entry.name.removesuffix(part) in types and entry.name not in types:
            return entry.name.removesuffix(part)
    return entry.name


def within(entry: Entry, spoken: str) -> bool:
    """Whether a version lies in an entry's range; a range end such as 0.8 takes in all of its releases."""
    here = version(spoken)
    if here is None:
        return True
    since, until = version(entry.since + ".0") if entry.since else None, version(entry.until + ".0")
    if since and here < since[:-1]:
        return False
    return not (entry.until and until and here[: len(until) - 1] > until[:-1])


@pytest.mark.parametrize(("name", "entry"), list(entries(*KNOWN)), ids=lambda value: getattr(value, "name", value))
def test_a_name_is_on_a_sample_page_with_its_kind_its_labels_and_in_its_versions(name: str, entry: Entry) -> None:
    where = {
        spoken: page for spoken, page in pages(name).items() if shown(entry) in {series for (series, _), _ in page.rows}
    }
    assert where, "no sample page has it"
    assert all(within(entry, spoken) for spoken in where), list(where)
    read = 0
    for page in where.values():
        kind = page.types.get(family(entry, page.types), "")
        # Engines declare some of their high-water marks counters and some of their counters gauges: caveats say so.
        assert kind in {"gauge" if entry.kind == "info" else entry.kind, "histogram"} or "declared a" in entry.caveat
        read += any(set(entry.where) <= set(labels) for (series, labels), _ in page.rows if series == shown(entry))
    assert read, f"no series with {entry.where}"


@pytest.mark.parametrize("name", KNOWN)
def test_a_page_has_every_name_of_its_version_that_needs_no_flag(name: str) -> None:
    for spoken, page in pages(name).items():
        names = {series for (series, _), _ in page.rows}
        if version(spoken) is None or name == "dynamo":
            continue
        absent = [
            entry.name
            for entry in maps.load(name).MAP
            if not entry.condition and within(entry, spoken) and shown(entry) not in names
        ]
        assert absent == [], spoken


@pytest.mark.parametrize(("name", "entry"), list(entries()), ids=lambda value: getattr(value, "name", value))
def test_an_entry_means_a_metric_of_the_catalogue_of_the_same_kind_and_unit(name: str, entry: Entry) -> None:
    if entry.kind == "info":
        return
    metric = CATALOG[entry.metric]
    assert (
        set(dict(entry.labels)) | set(entry.keep) | {ours for _, ours in entry.rename} == set(metric.labels)
        or name == "tensorrt_llm"
    )
    assert {"counter": "counter", "gauge": "gauge", "histogram": "observation"}[entry.kind] == metric.kind
    assert CATALOGUE_UNITS.get(entry.unit, entry.unit) == metric.unit or entry.scale != 1


@pytest.mark.parametrize("name", maps.names())
def test_a_map_recognises_its_own_names_and_nobody_elses(name: str) -> None:
    engine = maps.load(name)
    own = [entry.name for entry in engine.MAP if not entry.name.startswith(("process_", "trtllm_kv_transfer_"))]
    assert maps.detect_all(own) == (engine,) or name in ("dynamo", "tensorrt_llm")
    assert engine in maps.detect_all(own)
    assert (maps.detect(own) is engine) == (engine.ROLE != "machine")
    assert maps.detect(["node_load1", "process_start_time_seconds", "go_goroutines"]) is None


@pytest.mark.parametrize("name", maps.names())
def test_an_old_name_gives_way_to_one_that_the_same_map_knows(name: str) -> None:
    known = {(entry.name, entry.metric) for entry in maps.load(name).MAP}
    for entry in maps.load(name).MAP:
        assert not entry.unless or (entry.unless, entry.metric) in known


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
        # `who` tells groups of requests apart where a recording does, `replica` the engines of a fleet.
        assert {label for label, _ in sample.labels} <= {*metric.labels, "le", "who", "replica"}, sample
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
