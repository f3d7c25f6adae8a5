"""Any target's canonical metrics come out as a page that the official parser and kvscope itself read back."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.exporter import Exporter
from kvscope.exposition import Exposition
from kvscope.sources import open_target
from kvscope.sources.source import Description, Poll
from kvscope.sources.table import _labels, rows_of
from probes.catalog import metric_of
from probes.sample import Sample, labels_of

PAGES = sorted(Path("samples/scrapes").glob("*.prom"))
RECORDING = "samples/recordings/memory-down-throughput-flat.confirmed.cpu.jsonl"
INFO = {"engine": "made up", "version": "1", "model": 'a "quoted" name'}


def families(page: str) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(page)}  # type: ignore[no-untyped-call]


class OneSource:
    """A source under the test's hand."""

    def __init__(self, *samples: Sample) -> None:
        self.samples, self.alive, self.ended = list(samples), True, False

    def describe(self) -> Description:
        return replace(Description("ring", "here", "made up"), alive=self.alive)

    def poll(self) -> Poll:
        taken, self.samples = self.samples, []
        return Poll(taken, ended=self.ended)

    def close(self) -> None:
        return


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_engines_page_is_re_exposed_and_read_by_the_official_parser(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if run(["export", str(path)]) == 3:
        pytest.skip("a machine's exporter is no target")
    page = capsys.readouterr().out
    found = families(page)
    assert found["kvscope_engine"] == "info"
    assert len(found) > (1 if path.stem.startswith("router") else 3)
    with closing(open_target(str(path))) as source:
        names = {sample.metric for sample in source.poll().samples}
    assert len([name for name in found if name != "kvscope_engine"]) <= len(names)


def test_a_recordings_per_layer_series_and_requests_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", RECORDING]) == 0
    page = capsys.readouterr().out
    found = families(page)
    assert found["kvscope_sparse_index_seconds"] == "counter"
    assert found["kvscope_kv_resident_bytes"] == "gauge"


def test_values_of_requests_are_counted_into_a_histogram() -> None:
    exposition = Exposition()
    exposition.add(Sample("latency.ttft", value, 1.0) for value in (0.001, 0.3, 500.0))
    page = exposition.render(INFO)
    assert families(page)["kvscope_latency_ttft_seconds"] == "histogram"
    assert 'kvscope_latency_ttft_seconds_bucket{le="0.001"} 1' in page
    assert 'kvscope_latency_ttft_seconds_bucket{le="+Inf"} 3' in page
    assert "kvscope_latency_ttft_seconds_count 3" in page


def test_buckets_of_a_page_keep_their_labels_and_rise() -> None:
    exposition = Exposition()
    for bound, value in (("+Inf", 9.0), ("1", 4.0), ("0.5", 2.0)):
        exposition.add([Sample("latency.ttft.bucket", value, 1.0, labels_of(le=bound, replica="a"))])
    exposition.add([Sample("latency.ttft.sum", 3.5, 1.0, labels_of(replica="a"))])
    page = exposition.render(INFO)
    assert families(page)["kvscope_latency_ttft_seconds"] == "histogram"
    assert [line.split('le="')[1].split('"')[0] for line in page.splitlines() if "_bucket" in line] == [
        "0.5",
        "1.0",
        "+Inf",
    ]


def test_a_metric_that_the_catalogue_does_not_have_is_left_out() -> None:
    exposition = Exposition()
    exposition.add([Sample("nobody.knows", 1.0, 1.0), Sample("sched.running", float("nan"), 1.0)])
    assert list(families(exposition.render(INFO))) == ["kvscope_engine"]


def test_a_page_is_served_refused_while_the_target_is_silent_and_read_back() -> None:
    source = OneSource(Sample("sched.running", 3.0, 1.0), Sample("tokens.generated", 7.0, 1.0))
    with closing(Exporter(source)) as exporter:
        exporter.poll()
        with closing(open_target(exporter.address)) as again:
            values = {sample.metric: sample.value for sample in again.poll().samples}
        assert (values["sched.running"], values["tokens.generated"]) == (3.0, 7.0)
        source.alive = False
        exporter.poll()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(exporter.address)


def test_a_taken_port_is_said() -> None:
    with closing(Exporter(OneSource())) as first, pytest.raises(UsageError, match="expected a free port"):
        Exporter(OneSource(), first.port)


def test_what_a_dead_replica_said_last_is_no_value_of_now() -> None:
    exposition = Exposition(stale_s=30.0)
    dead, alive = labels_of(replica="a"), labels_of(replica="b")
    exposition.add([Sample("sched.running", 4.0, 0.0, dead), Sample("sched.running", 5.0, 0.0, alive)])
    exposition.add(Sample("sched.running", 5.0, float(t), alive) for t in range(1, 40))
    page = exposition.render({})
    assert 'replica="b"' in page
    assert 'replica="a"' not in page


def test_a_table_of_samples_reads_back_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "samples.csv"
    assert run(["export", RECORDING, "--csv", str(table)]) == 0
    with closing(open_target(RECORDING)) as first, closing(open_target(str(table))) as second:
        before, after = first.poll().samples, second.poll().samples
    assert before
    assert sorted(before) == sorted(after)
    assert run(["export", RECORDING, "--csv", str(table)]) == 2
    assert run(["export", RECORDING, "--csv", str(table), "--force"]) == 0
    assert "samples" in capsys.readouterr().out


def test_parquet_holds_every_sample_with_its_unit_labels_and_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("kvscope.sources.table._GROUP", 100)
    assert run(["export", RECORDING, "--parquet", str(tmp_path / "s.parquet"), "--csv", "-"]) == 0
    rows = parquet.read_table(tmp_path / "s.parquet").to_pylist()
    with closing(open_target(RECORDING)) as source:
        samples = source.poll().samples
    found = [(row["metric"], row["value"], row["t"].timestamp(), tuple(row["labels"])) for row in rows]
    assert found == [(one.metric, one.value, pytest.approx(one.t, abs=1e-6), one.labels) for one in samples]
    assert all(row["unit"] == metric_of(row["metric"]).unit for row in rows)
    assert {row["source"] for row in rows} == {RECORDING}
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "t,metric,value,unit,labels,source"
    assert len(out) == len(samples) + 1
    assert not Path("-").exists()


def test_parquet_without_its_package_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert run(["export", RECORDING, "--parquet", str(tmp_path / "s.parquet")]) == 2
    assert "pip install 'kvscope[parquet]'" in capsys.readouterr().err


def test_labels_of_any_text_come_back_from_a_table() -> None:
    labels = labels_of(a='a "quoted", b;c=d', b="", c="back\\slash")
    row = next(rows_of([Sample("engine.info", 1.0, 2.0, labels)]))
    assert _labels(row[4]) == labels
