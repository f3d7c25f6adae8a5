"""What is known of the machine is read without waiting, and its absence is said once."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvscope.sources import discover as module
from kvscope.sources.amd import AmdSource, available
from kvscope.sources.beside import MergedSource
from kvscope.sources.discover import discover
from kvscope.sources.fetch import FetchError
from kvscope.sources.flags import flags_of, local_pid, parse_flags
from kvscope.sources.host import HostSource, group_of, numa, quota
from kvscope.sources.nvml import NvmlSource
from kvscope.sources.source import Description, Mark, Poll
from probes.catalog import metric_of
from probes.ring import RingWriter
from probes.runtime import ENV_DIR
from probes.sample import Sample


def test_the_host_is_read_without_waiting() -> None:
    source = HostSource(os.getpid(), wall=lambda: 5.0)
    first, second = source.poll(), source.poll()
    assert not {sample.metric for sample in first.samples} & {"host.cpu_util", "host.process_cpu", "host.steal"}
    found = {sample.metric: sample for sample in second.samples}
    assert set(found) >= {"host.cpu_util", "host.process_cpu", "host.process_rss"}
    assert all(metric_of(metric) for metric in found)
    assert 0 <= found["host.cpu_util"].value <= 1
    assert found["host.process_rss"].value > 1 << 20
    assert found["host.cpu_util"].t == 5.0


def test_a_process_that_is_not_there_is_said_once() -> None:
    source = HostSource(99999999)
    assert "99999999" in source.poll().notices[0]
    poll = source.poll()
    assert poll.notices == ()
    assert "host.cpu_util" in {sample.metric for sample in poll.samples}
    assert "host.process_rss" not in {sample.metric for sample in poll.samples}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V2 = {
    "proc/7/cgroup": "0::/pods/engine\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
    "sys/fs/cgroup/pods/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 2500000\n",
    "sys/fs/cgroup/pods/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/pods/engine/cpu.stat": "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    "sys/fs/cgroup/pods/engine/cpu.max": "max 100000\n",
}
V1 = {
    "proc/7/cgroup": "4:memory:/\n2:cpu,cpuacct:/engine\n0::/\n",
    "sys/fs/cgroup/cpu,cpuacct/engine/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 2500000000\n",
    "sys/fs/cgroup/cpu,cpuacct/engine/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu,cpuacct/engine/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize("files", [V2, V1], ids=["version 2, the group above", "version 1"])
def test_the_quota_that_stops_a_process_is_read_in_cores_periods_and_seconds(
    tmp_path: Path, files: dict[str, str]
) -> None:
    group = group_of(7, written(tmp_path, files))
    assert quota(group) == {
        "host.quota": 0.5,
        "host.quota_periods": 40.0,
        "host.quota_hits": 30.0,
        "host.quota_time": pytest.approx(2.5),
    }


def test_without_a_quota_nobody_was_stopped_and_without_groups_nobody_knows(tmp_path: Path) -> None:
    files = {"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "usage_usec 9\n"}
    assert quota(group_of(7, written(tmp_path, files)))["host.quota_hits"] == 0.0
    assert quota(group_of(8, tmp_path)) == {}


def test_a_path_that_leaves_the_groups_is_not_followed(tmp_path: Path) -> None:
    files = {"proc/7/cgroup": "0::/../../secret\n", "secret/cpu.stat": "nr_throttled 5\n"}
    assert group_of(7, written(tmp_path, files)) is None


def test_memory_of_another_node_is_counted_where_there_are_nodes(tmp_path: Path) -> None:
    nodes = "sys/devices/system/node/node{}/numastat"
    text = "numa_hit 100\nlocal_node 90\nother_node 10\n"
    assert numa(written(tmp_path, {nodes.format(0): text})) == {}
    assert numa(written(tmp_path, {nodes.format(1): text})) == {"host.numa_remote": 20.0, "host.numa_pages": 200.0}


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


class FakeAmd:
    """Two GPUs with the answers of amdsmi 7.0.2; the second is an older card, which knows no residencies."""

    class AmdSmiException(Exception):
        """As the library's."""

    AmdSmiClkType = {"GFX": "gfx", "MEM": "mem"}  # noqa: RUF012
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self) -> None:
        self.counted: dict[str, Any] = {"accumulation_counter": 1000, "ppt_residency_acc": 100}
        self.down = False

    def amdsmi_init(self) -> None: ...

    def amdsmi_shut_down(self) -> None:
        self.down = True

    def amdsmi_get_processor_handles(self) -> list[int]:
        return [0, 1]

    def amdsmi_get_gpu_activity(self, handle: int) -> dict[str, Any]:
        return {"gfx_activity": 80, "umc_activity": "N/A"}

    def amdsmi_get_gpu_vram_usage(self, handle: int) -> dict[str, int]:
        return {"vram_total": 196592, "vram_used": 1024}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        told: Any = 350 if handle else "N/A"
        return {"current_socket_power": 700 if not handle else "N/A", "average_socket_power": told}

    def amdsmi_get_power_cap_info(self, handle: int) -> dict[str, int]:
        return {"power_cap": 750_000_000}

    def amdsmi_get_energy_count(self, handle: int) -> dict[str, float]:
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3}

    def amdsmi_get_clock_info(self, handle: int, kind: str) -> dict[str, Any]:
        return {"clk": 1900 if kind == "gfx" else 1300, "max_clk": "N/A"}

    def amdsmi_get_temp_metric(self, handle: int, sensor: str, metric: str) -> int:
        return 71

    def amdsmi_get_gpu_total_ecc_count(self, handle: int) -> dict[str, int]:
        raise self.AmdSmiException("not supported")

    def amdsmi_get_gpu_metrics_info(self, handle: int) -> dict[str, Any]:
        if handle:
            return {"accumulation_counter": "N/A", "ppt_residency_acc": 5, "xgmi_read_data_acc": [2**64 - 1] * 8}
        return self.counted


def test_amd_gpus_are_read_in_our_units_and_what_a_card_does_not_tell_is_left_out() -> None:
    smi, now = FakeAmd(), [10.0]
    source = AmdSource(wall=lambda: now[0], load=lambda: smi)
    first = source.poll()
    found = {(sample.metric, dict(sample.labels)["gpu"]): sample.value for sample in first.samples}
    assert found["gpu.util", "0"] == pytest.approx(0.8)
    assert found["gpu.mem_used", "0"] == 1 << 30
    assert (found["gpu.power", "0"], found["gpu.power", "1"]) == (700, 350)
    assert found["gpu.power_cap", "0"] == 750
    assert found["gpu.energy", "1"] == pytest.approx(30.6)
    assert (found["gpu.clock", "0"], found["gpu.mem_clock", "0"], found["gpu.temperature", "1"]) == (1900, 1300, 71)
    assert not {metric for metric, _ in found} & {"gpu.mem_bw_util", "gpu.clock_max", "gpu.errors", "gpu.throttled"}
    assert all(metric_of(metric) for metric, _ in found)
    assert "never tried on hardware" in first.notices[0]
    source.close()
    assert smi.down


def test_why_an_amd_gpu_was_held_down_is_the_share_of_the_firmwares_ticks_since_the_poll_before() -> None:
    smi, now = FakeAmd(), [10.0]
    source = AmdSource(wall=lambda: now[0], load=lambda: smi)
    smi.counted |= {"prochot_residency_acc": 0, "hbm_thm_residency_acc": 7, "xgmi_read_data_acc": [1000, "N/A"]}
    source.poll()
    now[0] = 12.0
    smi.counted = {
        "accumulation_counter": 3000,
        "ppt_residency_acc": 1600,
        "prochot_residency_acc": 0,
        "hbm_thm_residency_acc": 207,
        "xgmi_read_data_acc": [3000, "N/A"],
    }
    told = [one for one in source.poll().samples if one.metric in ("gpu.throttled", "gpu.link")]
    assert [(one.metric, one.value, one.labels) for one in told] == [
        ("gpu.throttled", 0.75, (("gpu", "0"), ("reason", "power"))),
        ("gpu.throttled", 0.1, (("gpu", "0"), ("reason", "thermal"))),
        ("gpu.link", 1000 * 1024, (("gpu", "0"),)),
    ]
    smi.counted["accumulation_counter"] = 5
    assert "gpu.throttled" not in {one.metric for one in source.poll().samples}


@pytest.mark.parametrize("error", [ModuleNotFoundError("amdsmi"), KeyError("libamd_smi.so"), OSError("no driver")])
def test_without_amdsmi_or_its_library_there_is_one_notice_and_no_sample(error: Exception) -> None:
    def load() -> Any:
        raise error

    source = AmdSource(load=load)
    first = source.poll()
    assert first.samples == []
    assert "no GPU readings: amdsmi" in first.notices[0]
    assert source.poll().notices == ()
    source.close()


def test_amds_driver_tells_whether_there_is_such_a_gpu(tmp_path: Path) -> None:
    assert not available(tmp_path)
    assert available(written(tmp_path, {"dev/kfd": ""}))


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
        assert local_pid(f"http://127.0.0.1:{port},http://127.0.0.1:{port}") is None
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


class Modern(FakeNvml):
    """A GPU that tells its clocks, why they are held down, its energy and what it moved."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetClockInfo(self, handle: int, which: int) -> int:
        return {self.NVML_CLOCK_SM: 1200, self.NVML_CLOCK_MEM: 2600}[which]

    def nvmlDeviceGetMaxClockInfo(self, handle: int, which: int) -> int:
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 3201}[which]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x4 | 0x1

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return 5_000

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> Any:
        self.sent += 2
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=self.sent)) for _ in fields]


def test_clocks_what_holds_them_down_and_energy_are_read_where_a_gpu_tells_them() -> None:
    nvml, times = Modern(), iter((1.0, 3.0))
    source = NvmlSource(wall=lambda: next(times), load=lambda: nvml)
    source.poll()
    found = {(one.metric, dict(one.labels).get("reason", "")): one.value for one in source.poll().samples}
    assert (found["gpu.clock", ""], found["gpu.mem_clock", ""], found["gpu.mem_clock_max", ""]) == (1200, 2600, 3201)
    assert (found["gpu.throttled", "power"], found["gpu.throttled", "thermal"]) == (1.0, 0.0)
    assert found["gpu.energy", ""] == 5.0
    assert found["gpu.link", ""] == 1024.0, "2 KiB in 2 s"
    assert ("gpu.errors", "") not in found, "what the binding does not know is left out"
