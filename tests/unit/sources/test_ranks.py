"""Recorders given together are told apart, add up, and outlive one of their writers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from kvscope import signals
from kvscope.errors import SourceError
from kvscope.screens.fleet import fleet
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import open_target
from kvscope.sources.several import RanksSource, is_list
from kvscope.store import Store
from probes.ring import RingWriter

OWN = ("rank.entries_read", "rank.kv_bytes", "rank.attend_time", "rank.exchange_time", "rank.wait_time", "time.decode")


class Rank:
    """A recorder of one rank, in a folder of its own since one process has one file name."""

    def __init__(self, folder: Path, rank: int, run: str = "one", monotonic: Sequence[float] = ()) -> None:
        header = {"engine": "kvscope-shards", "model": "m", "rank": {"index": rank, "of": 2, "run": run}}
        names = ("t", *OWN, *(("tokens.generated", "sched.running") if rank == 0 else ()))
        own = folder / str(rank)
        own.mkdir()
        self.names, self.writer = names, RingWriter(header, names, ("t",), directory=own, step_bytes=1 << 16)
        self.path = self.writer.path

    def step(self, t: float, **values: float) -> None:
        told = dict.fromkeys(self.names, 0.0) | {"t": t} | {k.replace("__", "."): v for k, v in values.items()}
        self.writer.write_step([told[name] for name in self.names])


def two(
    folder: Path, *, entries: tuple[float, float] = (100.0, 300.0), run: tuple[str, str] = ("one", "one")
) -> list[Rank]:
    """Two ranks over ten steps of a second, one token a step."""
    ranks = [Rank(folder, rank, run[rank]) for rank in range(2)]
    for n in range(10):
        for rank, one in enumerate(ranks):
            common = {"tokens__generated": float(n), "sched__running": 1.0} if rank == 0 else {}
            one.step(
                1000.0 + n, rank__entries_read=n * entries[rank], rank__kv_bytes=1e6, rank__attend_time=n * 0.1,
                rank__exchange_time=n * 0.5, rank__wait_time=n * 0.1, time__decode=n * 1.0, **common,
            )  # fmt: skip
    return ranks


def watched(target: str) -> Store:
    store = Store()
    with closing(open_target(target)) as source:
        store.add(source.poll().samples)
    return store


def value(store: Store, name: str) -> float:
    segment = store.segments[0]
    found = signals.compute(name, store, segment)
    assert isinstance(found, Reading), found
    return found.value


def test_a_list_of_recorders_is_told_by_rank_and_adds_up(tmp_path: Path) -> None:
    ranks = two(tmp_path)
    store = watched(",".join(str(one.path) for one in ranks))
    assert {dict(labels)["rank"] for labels in store.keys("rank.entries_read")} == {"0", "1"}
    assert value(store, "rank_read_ratio") == pytest.approx(1.5)
    assert value(store, "rank_kv_ratio") == pytest.approx(1.0)
    assert value(store, "generation_tokens_per_s") == pytest.approx(1.0)


def test_what_sharding_brings_is_inferred_from_what_all_ranks_read(tmp_path: Path) -> None:
    ranks = two(tmp_path)
    store = watched(",".join(str(one.path) for one in ranks))
    assert value(store, "rank_exchange_share") == pytest.approx(0.5)
    assert value(store, "rank_wait_of_exchange") == pytest.approx(0.2)
    missing = signals.compute("shard_speedup", store, store.segments[0])
    assert isinstance(missing, Missing)
    assert "sparse.index_time" in missing.reason


def test_one_recorder_of_several_is_one_rank_only(tmp_path: Path) -> None:
    store = watched(str(two(tmp_path)[0].path))
    found = signals.compute("rank_read_ratio", store, store.segments[0])
    assert isinstance(found, Missing)
    assert found.reason == "one rank only"


def test_recorders_of_different_runs_are_named_by_process(tmp_path: Path) -> None:
    ranks = two(tmp_path, run=("one", "other"))
    with closing(RanksSource([one.path for one in ranks])) as source:
        assert "pid " in source.describe().target


def test_a_dead_rank_is_told_and_the_others_are_read_on(tmp_path: Path) -> None:
    ranks = two(tmp_path)
    ranks[1].writer.close()
    with closing(RanksSource([one.path for one in ranks])) as source:
        poll = source.poll()
        assert not poll.ended
        assert any(line.startswith("rank 1: pid ") and "ended" in line for line in poll.notices)
        ranks[0].step(1100.0, rank__entries_read=5000.0)
        assert any(sample.value == 5000.0 for sample in source.poll().samples)
        assert source.describe().alive


def test_another_kind_of_file_among_recorders_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "pages.jsonl"
    page.write_text(json.dumps({"t": 1, "text": ""}) + "\n")
    target = f"{two(tmp_path)[0].path},{page}"
    assert is_list(target)
    with pytest.raises(SourceError, match="a series; expected flight recorders only"):
        open_target(target)


def test_addresses_are_no_recorders() -> None:
    assert not is_list("a:1,b:2")
    assert not is_list("12")


def test_the_fleet_screen_shows_ranks_side_by_side_and_says_that_others_wait(tmp_path: Path) -> None:
    store = watched(",".join(str(one.path) for one in two(tmp_path)))
    reader = Reader(store)
    reader.at(store.segments[0], None)
    table = fleet(reader)
    assert isinstance(table.rows, tuple)
    assert [row[0] for row in table.rows] == ["0", "1"]
    columns = [name for name, _ in table.columns]
    second = dict(zip(columns, table.rows[1], strict=True))
    assert second["KV"] == 1e6
    assert second["entries/s"] == pytest.approx(300.0)
    assert (second["attend"], second["exchange"], second["waiting"]) == pytest.approx((0.1, 0.5, 0.1))
    assert "1.50 times the mean: the others wait for it" in table.told[0]
