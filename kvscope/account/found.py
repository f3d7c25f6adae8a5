"""What the bound of a step needs and no page tells: the model's config and the device, asked for or found here.

The model is that of ``--config``, else the folder named on the engine's command line where it runs on this machine,
else the local model cache's copy of the name that the page gives. The device is that of ``--gpu``, else what a trace,
the page or an exporter beside it names, else the GPU that NVML sees beside a local engine: its bandwidth is twice its
memory clock times its bus.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

from kvscope import devices
from kvscope.account.facts import Facts
from kvscope.devices import Device
from kvscope.errors import UsageError
from kvscope.plan import Geometry, geometry
from kvscope.plan.forms import KvForms
from kvscope.sources import amd
from kvscope.sources.flags import flags_of, local_pid
from kvscope.sources.scrape import is_url
from kvscope.sources.source import Description
from kvscope.store import Store

_ON_COMMAND_LINES = ("model", "model-path", "served-model")
_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")


def facts_of(target: str, about: Description, store: Store, config: str | None = None, gpu: str | None = None) -> Facts:
    """Return what is known of model and device; UsageError where ``config`` or ``gpu`` cannot be read."""
    pid = _pid(target)
    model, model_from = _model(config, about, pid)
    device, device_from = _device(gpu, about, store, pid)
    return Facts(
        model=model,
        device=device,
        kv_dtype=_kv_dtype(about, store),
        sources=tuple(filter(None, (model_from, device_from))),
    )


def _pid(target: str) -> int | None:
    """Return the engine's process where it runs on this machine."""
    if target.isdecimal():
        return int(target)
    return local_pid(target) if is_url(target) and not Path(target).exists() else None


def _kv_dtype(about: Description, store: Store) -> str:
    """Return how KV is said to be kept, by a setting or by the page, where that is a form that can be counted."""
    # Only a person overrules the page; a model's config.json says what it computes in, not how KV is kept.
    said = {
        (dict(labels)["setting"], dict(labels)["source"]): dict(labels)["value"] for labels in store.keys("config.said")
    }
    for name in (said.get(("kv type", "person")), about.tags.get("dtype"), said.get(("kv type", "page"))):
        if name and name != "auto":
            with contextlib.suppress(UsageError):
                KvForms.named(name)
                return name
    return "auto"


def _model(path: str | None, about: Description, pid: int | None) -> tuple[Geometry | None, str]:
    if path:
        return geometry(path), Path(path).name
    if about.config:
        with contextlib.suppress(UsageError, ValueError, RecursionError):
            kept = json.loads(about.config)
            if isinstance(kept, dict):
                return geometry(kept), "config.json kept in the recording"
    for found, where in _configs(about, pid):
        with contextlib.suppress(UsageError, OSError):
            return geometry(str(found)), where
    return None, ""


def _configs(about: Description, pid: int | None) -> list[tuple[Path, str]]:
    """Return where a config.json of the model may lie on this machine, nearest first."""
    named = [about.tags["model"]] if about.tags.get("model") else []
    if pid is not None:
        told = flags_of(pid, _ON_COMMAND_LINES)
        named = [*told.values(), *_served(pid), *named]
    found: list[tuple[Path, str]] = []
    for name in named:
        folder = Path(os.path.expanduser(name))
        if pid is not None and (folder / "config.json").is_file():
            found.append((folder / "config.json", f"{folder.name}/config.json of the engine's command line"))
        found += [(copy, f"config.json of {name} in the model cache") for copy in _cached(name)]
    return found


def _served(pid: int) -> list[str]:
    """Return the model of ``vllm serve MODEL``."""
    import psutil

    with contextlib.suppress(psutil.Error):
        words = psutil.Process(pid).cmdline()
        return [words[index + 1] for index, word in enumerate(words[:-1]) if word == "serve"]
    return []


def _cached(name: str) -> list[Path]:
    """Return the copies of a model's config.json in the Hugging Face cache of this user."""
    if name.count("/") != 1 or name.startswith((".", "/")):
        return []
    home = Path(os.path.expanduser(os.environ.get("HF_HOME", "~/.cache/huggingface"))) / "hub"
    roots = [Path(os.environ[key]) for key in _CACHES if os.environ.get(key)] or [home]
    folder = f"models--{name.replace('/', '--')}"
    return [path for root in roots for path in sorted((root / folder / "snapshots").glob("*/config.json"))]


def _device(name: str | None, about: Description, store: Store, pid: int | None) -> tuple[Device | None, str]:
    if name:
        asked = devices.find(name)
        return asked, _says(asked)
    # An exporter beside the engine names its cards, too.
    named = [about.tags.get("device", ""), *(dict(labels).get("device", "") for labels in store.keys("engine.info"))]
    for card in filter(None, named):
        with contextlib.suppress(UsageError):
            return _at_its_clock(devices.find(card), store)
    return (_amd() if amd.available() else _nvml()) if pid is not None else (None, "")


def _at_its_clock(device: Device, store: Store) -> tuple[Device, str]:
    """Return the card with the bandwidth that its memory's clock makes, where it was never seen at its highest.

    The bus is the same, so bandwidth goes with the clock. An idle card's clock may rest: the highest seen counts.
    """
    most, now = (_highest(store, metric) for metric in ("gpu.mem_clock_max", "gpu.mem_clock"))
    if not most or not now or now >= most:
        return device, _says(device)
    slower = replace(device, bandwidth=device.bandwidth * now / most)
    return slower, f"{device.name} {slower.bandwidth / 1e12:.2f} TB/s: memory at {now / most:.0%} of its highest clock"


def _highest(store: Store, metric: str) -> float | None:
    return max((value for labels in store.keys(metric) for value in store.series(metric, labels)[1]), default=None)


def _says(device: Device) -> str:
    return f"{device.name} {device.bandwidth / 1e12:.2f} TB/s by data sheet"


def _amd() -> tuple[Device | None, str]:
    """Return the first GPU of this machine by the name that amdsmi has for it. Untested on hardware."""
    with contextlib.suppress(Exception):
        lib = amd.load_library()
        lib.amdsmi_init()
        with contextlib.ExitStack() as stack:
            stack.callback(lib.amdsmi_shut_down)
            card = devices.find(lib.amdsmi_get_gpu_asic_info(lib.amdsmi_get_processor_handles()[0])["market_name"])
            return card, _says(card)
    return None, ""


def _nvml() -> tuple[Device | None, str]:
    """Return the first GPU of this machine with the bandwidth that its clock and bus make."""
    from kvscope.sources.nvml import load_library

    # NVML raises classes of its own, made when it is loaded; without it, or for an unknown card, nothing is known.
    with contextlib.suppress(Exception):
        lib = load_library()
        lib.nvmlInit()
        with contextlib.ExitStack() as stack:
            stack.callback(lib.nvmlShutdown)
            handle = lib.nvmlDeviceGetHandleByIndex(0)
            name = lib.nvmlDeviceGetName(handle)
            name = name.decode() if isinstance(name, bytes) else str(name)
            clock = lib.nvmlDeviceGetMaxClockInfo(handle, lib.NVML_CLOCK_MEM) * 1e6
            bandwidth = bandwidth_of(clock, lib.nvmlDeviceGetMemoryBusWidth(handle))
            return replace(devices.find(name), bandwidth=bandwidth), f"{name} {bandwidth / 1e12:.2f} TB/s by NVML"
    return None, ""


def bandwidth_of(memory_clock_hz: float, bus_bits: int) -> float:
    """Return bytes a second: memory moves data on both edges of its clock."""
    return 2.0 * memory_clock_hz * bus_bits / 8
