"""Turns what is seen of a transformers model into rows of the flight recorder."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from probes.cache_layers import Held, UnknownCacheError, cache_of_input, cache_of_output, held, layers_of
from probes.generation import REQUEST_COLUMNS, Generation, request_rows
from probes.recorder import Recorder, Sink, step_columns

COUNTERS = (
    *("time.step", "time.prefill", "time.decode", "batch.steps", "batch.decode_steps", "tokens.generated"),
    *("tokens.prompt", "tokens.prefilled", "requests.finished"),
)
GAUGES = (
    *("batch.tokens_per_step", "batch.context_tokens", "sched.running", "kv.resident_bytes", "kv.overhead_bytes"),
    *("kv.reserved_bytes", "kv.used_tokens", "kv.entries", "kv.bytes_per_token_measured"),
)
LAYER_METRICS = ("kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries")
MEMORY_EVERY = 16
"""Steps between two readings of the cache, which walk all layers: it grows by one entry a step meanwhile."""

_log = logging.getLogger("kvscope")


def columns(layers: int) -> list[str]:
    """Columns of a step row of a model with so many layers."""
    return step_columns((*COUNTERS, *GAUGES), LAYER_METRICS, layers)


class ModelRows:
    """Writes a step row per forward pass and a request row per sequence; ``device`` is where the model computes."""

    def __init__(self, sink: Sink, layers: int, device: str) -> None:
        self._layers, self._device = layers, device
        self._recorder = Recorder(sink, columns(layers), REQUEST_COLUMNS)
        self._seen: MutableMapping[Any, int] = WeakKeyDictionary()
        self._unknown = False
        # A gauge nobody has read yet has no value; 0 would be one.
        for name in columns(layers):
            if name not in COUNTERS and name != "t":
                self._recorder.set(name, float("nan"))

    def begin(self, call: Generation, now: float, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A forward pass starts. That ends the one before it: its token is chosen and the stop conditions are met.

        The caller's own loop waits for the device there, so that device time is in the step without a wait of ours.
        """
        if call.in_step:
            self._step(call, now, chose_token=True)
        call.begin(now, args, kwargs, self._held(call, cache_of_input(kwargs)))

    def forwarded(self, call: Generation, now: float, kwargs: dict[str, Any], output: Any) -> None:
        """A forward pass returned. One outside ``generate`` is a step by itself."""
        call.cache = cache_of_output(output)
        if call.cache is None:
            call.cache = cache_of_input(kwargs)
        if call.cache is not None and not isinstance(call.cache, tuple):
            self._seen[call.cache] = call.seen
        if call.alone:
            self._step(call, now, chose_token=False)

    def finish(self, call: Generation, now: float, output: Any, model: Any, kwargs: dict[str, Any]) -> None:
        """``generate`` returned: write its last step and a row for each of its requests."""
        if not call.in_step:
            _log.warning("kvscope sees no forward pass of %s: is it compiled?", type(model).__name__)
            return
        self._memory(call)
        chosen, seconds, tokens = call.end(now, True)
        rows = request_rows(call, now, output, model, kwargs)
        self._recorder.add("requests.finished", len(rows))
        if call.drafts:
            # A pass counted one token of each request; what drafts brought beyond that is known only now.
            accepted = sum(row["request.tokens_out"] for row in rows) - call.batch * len(call.token_times)
            self._recorder.add("tokens.generated", max(0.0, accepted))
        self._commit(call, seconds, tokens, chose_token=chosen)
        for row in rows:
            self._recorder.finish_request(row)

    def _step(self, call: Generation, now: float, *, chose_token: bool) -> None:
        chosen, seconds, tokens = call.end(now, chose_token)
        if call.prefill or self._recorder.read("batch.steps") % MEMORY_EVERY == 0:
            self._memory(call)
        self._commit(call, seconds, tokens, chose_token=chosen)

    def _commit(self, call: Generation, seconds: float, tokens: int, *, chose_token: bool) -> None:
        add, put = self._recorder.add, self._recorder.set
        add("time.step", seconds)
        add("time.prefill" if call.prefill else "time.decode", seconds)
        add("batch.steps", 1)
        add("batch.decode_steps", not call.prefill)
        add("tokens.generated", call.batch if chose_token else 0)
        add("tokens.prompt", tokens if call.prefill else 0)
        add("tokens.prefilled", tokens if call.prefill else 0)
        put("batch.tokens_per_step", tokens)
        put("batch.context_tokens", call.seen)
        put("sched.running", call.batch)
        self._recorder.commit()

    def _memory(self, call: Generation) -> None:
        if call.cache is None or self._unknown:
            return
        try:
            layers = layers_of(call.cache)
        except UnknownCacheError as error:
            self._unknown = True
            _log.warning("kvscope reads no KV bytes: %s is unknown to it", error)
            return
        found = [Held() for _ in range(self._layers)]
        for total, parts in zip(found, layers, strict=False):
            for part in parts:
                total.add(held(part, call.seen, self._device))
        by_layer = [layer.live_bytes + layer.overhead_bytes for layer in found]
        call.kv_bytes, used, put = sum(by_layer), call.batch * call.seen, self._recorder.set
        put("kv.resident_bytes", call.kv_bytes)
        put("kv.overhead_bytes", sum(layer.overhead_bytes for layer in found))
        put("kv.reserved_bytes", sum(layer.storage_bytes for layer in found))
        put("kv.used_tokens", used)
        put("kv.entries", call.batch * sum(layer.hot + layer.cold for layer in found) / len(found))
        put("kv.bytes_per_token_measured", call.kv_bytes / used if used else float("nan"))
        self._recorder.set_layers("kv.bytes_per_layer", by_layer)
        self._recorder.set_layers("kv.hot_entries", [call.batch * layer.hot for layer in found])
        self._recorder.set_layers("kv.cold_entries", [call.batch * layer.cold for layer in found])

    def _held(self, call: Generation, cache: Any) -> int:
        """Return how many tokens a cache holds that is passed in; asked of the cache once only, then counted.

        Where drafts are checked it is asked every time: what was not accepted has been cut off.
        """
        if cache is None or (call.batch and not call.drafts):
            return 0
        if isinstance(cache, tuple):
            return int(cache[0][0].shape[-2]) if cache else 0
        if call.drafts or cache not in self._seen:
            self._seen[cache] = int(cache.get_seq_length())
        return self._seen[cache]
