"""The short form of stated figures, and trouble reports as they lie.

    figures: 1
    engine: vllm
    version: 0.25.0
    model: Qwen3-8B
    device: H200
    config: {kv_cache_dtype: fp8, max_num_seqs: 64}
    values:
      - {name: tpot, value: 28.9 ms, arm: before, source: client}
      - {name: tpot, value: 33.4 ms, arm: after, source: client}

``name`` is canonical (``latency.tpot``), short (``tpot``), or the engine's own (``vllm:num_requests_running``); a
counter's value is per second unless its unit says otherwise. A trouble report has ``observations`` with ``key`` and
``provenance``, and ``config_flags``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kvscope.errors import SourceError
from kvscope.sources.stated.arms import replicas
from kvscope.sources.stated.figure import MEASURED, Figure, Stated, aliases, figure_of, number_of, take_settings
from probes import border

_MOST = 5000
_BYTES = 4 << 20
_ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama.cpp",
    "ik_llama": "llama.cpp",
    "tensorrt": "tensorrt-llm",
    "trt": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
    "ollama": "ollama",
    "tgi": "tgi",
    "lmcache": "lmcache",
    "dynamo": "dynamo",
    "mooncake": "mooncake",
}
TEMPLATE = """\
# Figures as somebody gave them; fill in what is known, leave out the rest: kvscope diagnose THIS.yaml
figures: 1
engine: vllm            # vllm, sglang, llama.cpp, tensorrt-llm, ollama, lmdeploy, tgi
version: ""
model: ""
device: ""
config:                 # options as the engine spells them, or config.NAME
  kv_cache_dtype: auto
values:                 # name: canonical, short (ttft, tpot, throughput, kv usage …) or from the engine's page
  - {name: throughput, value: 0 tok/s, arm: before, source: ""}
  - {name: throughput, value: 0 tok/s, arm: after, source: ""}
  - {name: tpot, value: 0 ms, arm: before, source: ""}
  - {name: tpot, value: 0 ms, arm: after, source: ""}
"""


class _Loader(yaml.SafeLoader):
    """Without aliases: nothing that was written by hand needs them, and they make little text enormous."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def looks_stated(start: bytes) -> bool:
    """Whether a text starts as figures or a trouble report do."""
    lines = [line.split(b":")[0].strip() for line in start.splitlines()[:400]]
    return b"observations" in lines or (b"figures" in lines and b"values" in lines)


def read(path: Path) -> Stated:
    """Read a document of figures. SourceError when it is none, or holds not one figure."""
    try:
        data = border.read_file(path, _BYTES).decode("utf-8", errors="replace")
        found = yaml.load(data, Loader=_Loader)
    except border.Refused as error:
        raise SourceError(str(error)) from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        line = str(error).splitlines()[0][:160] if str(error) else "nested too deep"
        raise SourceError(f"{path}: not YAML ({line}); expected figures as in `kvscope figures new`") from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path}: expected a mapping with 'values', as in `kvscope figures new`")
    stated = _stated(found)
    if not any(one.metric for one in stated.figures):
        raise SourceError(f"{path}: not one figure whose name is known{_first_unknown(stated)}")
    return stated


def _first_unknown(stated: Stated) -> str:
    from kvscope.sources.stated.figure import unknown_notice

    lines = unknown_notice(stated)
    return f"; {lines[0]}" if lines else "; expected 'values' with name and value"


def _stated(found: Mapping[Any, Any]) -> Stated:
    words = str(found.get("engine") or "").lower()
    engine = next((name for word, name in _ENGINES.items() if word in words), words.partition(" ")[0][:40])
    stated = Stated(engine)
    for tag in ("version", "model", "device", "workload", "offered_load"):
        if isinstance(found.get(tag), str | int | float) and str(found[tag]):
            stated.tags[tag] = str(found[tag])[:120]
    if "device" not in stated.tags and isinstance(found.get("hardware"), str):
        stated.tags["device"] = found["hardware"][:120]
    report = found.get("observations")
    stated.report = isinstance(report, list)
    rows = report if isinstance(report, list) else found.get("values")
    items = [one for one in rows[:_MOST] if isinstance(one, dict)] if isinstance(rows, list) else []
    phase = next((str(one.get("value")) for one in items if one.get("key") == "phase"), "")
    phase = phase if phase in ("prefill", "decode") else ""
    for one in items:
        _take(one, stated, phase)
    stated.figures = replicas(stated.figures) + _shares_of_steps(stated)
    flags = found.get("config_flags") or found.get("config")
    take_settings(stated, flags if isinstance(flags, dict) else {})
    seconds = number_of(found.get("seconds"))
    stated.seconds = seconds[0] if seconds and seconds[0] > 0 else 0.0
    return stated


def _shares_of_steps(stated: Stated) -> list[Figure]:
    """Return the step's own second for times that are told of one step: they become shares of it."""
    found = []
    for one in list(stated.figures):
        per = aliases()["keys"].get(one.key, {}).get("per")
        step = next((step for step in stated.figures if step.key == per and step.arm == one.arm), None) if per else None
        if step is not None and step.value > 0:
            stated.figures.remove(one)
            found += [replace(one, value=one.value / step.value, total=False)]
            found += [Figure(one.key, "time.step", (), 1.0, one.arm)]
    return found


def _take(one: Mapping[Any, Any], stated: Stated, phase: str) -> None:
    name = str(one.get("name") or one.get("key") or "")[:200]
    if str(one.get("provenance") or "") not in MEASURED or not name or name == "phase":
        return
    value = number_of(one.get("value"))
    if value is None and name == "event.oom_phase":
        value = (1.0, "")
    if value is None:
        return
    alias = aliases()["keys"].get(name, {})
    # Such a name says "an attention kernel": of which phase is told beside it, or it is not known.
    if "{phase}" in alias.get("metric", "") and not phase:
        return
    arm = str(one.get("arm") or "")[:120]
    unit = str(one.get("unit") or value[1])
    # A report's names carry their units: the aliases know their factors.
    stated.figures += figure_of(name, value[0], "" if alias and "key" in one else unit, arm, stated, phase)
