"""What is known of the machine is read without waiting, and its absence is said once."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvscope.sources import discover as module
from kvscope.sources._merged import MergedSource
from kvscope.sources.discover import discover
from kvscope.sources.fetch import FetchError
from kvscope.sources.flags import flags_of, local_pid, parse_flags
from kvscope.sources.host import HostSource
from kvscope.sources.nvml import NvmlSource
from kvscope.sources.source import Description, Mark, Poll
from probes.catalog import metric_of
from probes.ring import RingWriter
from probes.runtime import ENV_DIR
from probes.sample import Sample


def test_the_host_is_read_without_waiting() -> None:
    source = HostSource(os.getpid(), wall=lambda: 5.0)
    first, second = source.poll(), source.poll()
    assert {sample.metric for sample in first.samples} == {"host.process_rss"}, "use needs two looks"
    found = {sample.metric: sample for sample in second.samples}
    assert set(found) == {"host.cpu_util", "host.process_cpu", "host.process_rss"}
    assert 0 <= found["host.cpu_util"].value <= 1
    assert found["host.process_rss"].value > 1 << 20
    assert found["host.cpu_util"].t == 5.0


def test_a_process_that_is_not_there_is_said_once() -> None:
    source = HostSource(99999999)
    assert "99999999" in source.poll().notices[0]
    poll = source.poll()
    assert poll.notices == ()
    assert [sample.metric for sample in poll.samples] == ["host.cpu_util"]


class FakeNvml:
    """Two GPUs; the second one does not tell its power."""

    class NVMLError(Exception):
        """As the library's."""

    def __init__(self) -> None:
        self.down = False

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.down = True

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=50, memory=25)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=1 << 30)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle:
            raise self.NVMLError("not supported")
        return 70_000


def test_gpus_are_read_in_our_units() -> None:
    nvml = FakeNvml()
    source = NvmlSource(wall=lambda: 1.0, load=lambda: nvml)
    found = {(sample.metric, dict(sample.labels)["gpu"]): sample.value for sample in source.poll().samples}
    assert found["gpu.util", "0"] == 0.5
    assert found["gpu.mem_bw_util", "1"] == 0.25
    assert found["gpu.mem_used", "0"] == 1 << 30
    assert found["gpu.power", "0"] == 70
    assert ("gpu.power", "1") not in found
    assert all(metric_of(metric) for metric, _ in found)
    source.close()
    assert nvml.down


def test_without_nvml_there_is_one_notice_and_no_sample() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("pynvml")

    source = NvmlSource(load=load)
    first = source.poll()
    assert first.samples == []
    assert "kvscope[gpu]" in first.notices[0]
    assert source.poll().notices == ()
    source.close()


class ListSource:
    """Gives the polls it was given."""

    def __init__(self, name: str, *polls: Poll) -> None:
        self.name = name
        self.polls = list(polls)
        self.closed = False

    def describe(self) -> Description:
        return Description("list", self.name)

    def poll(self) -> Poll:
        return self.polls.pop(0)

    def close(self) -> None:
        self.closed = True


def test_several_sources_are_one_in_time_order() -> None:
    engine = ListSource("engine", Poll([Sample("a", 1, 1.0), Sample("a", 2, 3.0)], (Mark("m", 3.0),), ("one",), True))
    host = ListSource("host", Poll([Sample("b", 1, 2.0)], notices=("two",)))
    merged = MergedSource(engine, [host])
    poll = merged.poll()
    assert [sample.t for sample in poll.samples] == [1.0, 2.0, 3.0]
    assert poll.notices == ("one", "two")
    assert poll.ended
    assert merged.describe().target == "engine"
    merged.close()
    assert engine.closed
    assert host.closed


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "m", "--max-num-seqs", "4", "--api-key", "secret"],
        ["vllm", "serve", "m", "--api-key=secret", "--max-num-seqs=4"],
        ["vllm", "serve", "m", "--max_num_seqs", "4"],
    ],
)
def test_of_a_command_line_only_the_wanted_flags_are_kept(words: list[str]) -> None:
    assert parse_flags(words, ("max-num-seqs",)) == {"max-num-seqs": "4"}


def test_a_bare_switch_is_kept_without_a_value() -> None:
    assert parse_flags(["x", "--max-num-seqs", "--enforce-eager"], ("max-num-seqs",)) == {"max-num-seqs": ""}
    assert parse_flags(["x", "-np", "4", "--enforce-eager"], ("enforce-eager", "np")) == {
        "np": "4",
        "enforce-eager": "",
    }


def test_only_an_address_of_this_machine_has_a_process_here() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert local_pid(f"http://127.0.0.1:{port}/metrics") == os.getpid()
        assert local_pid(f"http://10.0.0.1:{port}/metrics") is None
    assert flags_of(os.getpid(), ("no-such-flag",)) == {}
    assert flags_of(99999999, ("max-num-seqs",)) == {}


def test_engines_of_this_machine_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_DIR, str(tmp_path))
    tmp_path.chmod(0o700)
    writer = RingWriter({"engine": "kvscope", "model": "recall"}, ["t"], ["t"], directory=tmp_path)
    (tmp_path / "engine-1-1.ring").write_bytes(b"KVSCOPE\x01 cut")
    monkeypatch.setattr(module, "listening_ports", lambda: {8000: 1, 8001: os.getpid(), 9100: 0, 5432: 0})

    def get(url: str, timeout_s: float) -> str:
        if ":8000/" in url or ":8001/" in url:
            return "vllm:num_requests_running 1\n"
        if ":9100/" in url:
            return "node_load1 1\n"
        raise FetchError(f"{url}: refused")

    found = discover(get=get)
    assert [(one.target, one.kind, one.alive) for one in found] == [
        (str(os.getpid()), "ring", True),
        ("127.0.0.1:8000", "vllm", True),
        (str(tmp_path / "engine-1-1.ring"), "ring", False),
    ]
    assert "kvscope recall" in found[0].says
    assert "pid 1 (" in found[1].says
    assert "cannot be read" in found[2].says
    writer.close()
    assert "ended, last heard of" in next(one for one in discover(get=get) if one.target == str(writer.path)).says


def test_where_nothing_can_be_listed_the_usual_ports_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_DIR, str(tmp_path / "none"))
    monkeypatch.setattr(module, "listening_ports", dict)
    asked: list[str] = []

    def get(url: str, timeout_s: float) -> str:
        asked.append(url)
        raise FetchError("refused")

    assert discover(get=get) == []
    assert {f"http://127.0.0.1:{port}/metrics" for port in (8000, 8080, 30000)} <= set(asked)
