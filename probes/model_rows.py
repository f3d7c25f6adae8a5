"""Turns what is seen of a transformers model, and of the layers of its cache, into rows of the flight recorder."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from probes.generation import REQUEST_COLUMNS, Generation, request_rows
from probes.recorder import Recorder, Sink, step_columns

_NAMES = ("cache", "past_key_values", "cache_params")
"""What models call their cache: since transformers 5.20 or so, before, and in state-space models."""

_MAIN = ("keys", "values")
_QUANTIZED = ("_quantized_keys", "_quantized_values")
_PLAIN = (int, float, str, type(None))
_MOST_NESTED = 4


class UnknownCacheError(Exception):
    """The object is no cache this file knows how to read; the message names its class."""


@dataclass(slots=True)
class Held:
    """One layer, all requests together: bytes of live KV, of what comes on top (scales, index keys), of the storages.

    ``hot`` entries are stored as attention reads them, where it computes; ``cold`` ones quantised or offloaded.
    """

    live_bytes: float = 0.0
    overhead_bytes: float = 0.0
    storage_bytes: float = 0.0
    hot: int = 0
    cold: int = 0

    def add(self, other: Held) -> None:
        """Count another part of the same layer in (cross-attention beside self-attention)."""
        self.live_bytes += other.live_bytes
        self.overhead_bytes += other.overhead_bytes
        self.storage_bytes += other.storage_bytes
        self.hot += other.hot
        self.cold += other.cold


def cache_of_output(output: object) -> Any:
    """Return the cache a forward pass gave back, or None. An old name is asked for only where the new one is not there:
    later versions answer to both, with a warning."""
    return next((getattr(output, name) for name in _NAMES if hasattr(output, name)), None)


def cache_of_input(kwargs: Mapping[str, Any]) -> Any:
    """Return the cache a forward pass was given, or None."""
    return next((kwargs[name] for name in _NAMES if kwargs.get(name) is not None), None)


def layers_of(cache: object) -> list[list[object]]:
    """Return for every layer of the model the cache layers that belong to it. UnknownCacheError for another class."""
    own, cross = getattr(cache, "self_attention_cache", None), getattr(cache, "cross_attention_cache", None)
    if own is not None and cross is not None:
        pairs = [*zip(layers_of(own), layers_of(cross), strict=False)]
        return [a + b for a, b in pairs] or layers_of(own)
    layers = getattr(cache, "layers", None)
    if isinstance(layers, list):
        return [[layer] for layer in layers]
    keys, values = getattr(cache, "key_cache", None), getattr(cache, "value_cache", None)
    if isinstance(keys, list) and isinstance(values, list):
        return [[pair] for pair in zip(keys, values, strict=False)]
    if isinstance(cache, tuple) and all(isinstance(pair, tuple) for pair in cache):
        return [[pair[:2]] for pair in cache]
    raise UnknownCacheError(f"cache class {type(cache).__name__}")


def held(layer: object, seen: int, device: str) -> Held:
    """Return what one cache layer holds after ``seen`` tokens; ``device`` is where the model computes."""
    found = Held()
    parts = _parts(layer)
    storages: dict[int, int] = {}
    quantised = 0
    for name, value in parts.items():
        tensors = list(_tensors(value, 0))
        for tensor in tensors:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr() or id(storage)] = storage.nbytes()
        sizes = sorted((tensor.numel() * tensor.element_size() for tensor in tensors), reverse=True)
        if name in _MAIN and tensors:
            _count_main(found, tensors[0], sizes[0], name, layer, seen, device)
        elif name in _QUANTIZED and sizes:
            # The codes are the KV; scales and zero points beside them are what it costs to read them back.
            quantised += 1
            found.live_bytes += sizes[0]
            found.overhead_bytes += sum(sizes[1:])
        else:
            found.overhead_bytes += sum(sizes)
    if quantised:
        found.cold += max(0, seen - found.hot)
    found.storage_bytes = float(sum(storages.values()))
    return found


def _count_main(found: Held, tensor: Any, size: int, name: str, layer: object, seen: int, device: str) -> None:
    slots = int(tensor.shape[-2]) if len(tensor.shape) > 1 else 0
    # A static layer is allocated for its whole length; what lies beyond the tokens seen is reserved, not held.
    filled = min(slots, seen) if hasattr(layer, "max_cache_len") else slots
    found.live_bytes += size * filled / slots if slots else 0
    if name == "keys":
        here = str(getattr(tensor, "device", device)).partition(":")[0] == device.partition(":")[0]
        found.hot += filled if here else 0
        found.cold += 0 if here else filled


def _parts(layer: object) -> Mapping[str, object]:
    if isinstance(layer, tuple):
        return dict(zip(_MAIN, layer, strict=False))
    names = vars(layer)
    # One number is a counter or a window's length, not KV.
    return {
        name: value
        for name, value in names.items()
        if not isinstance(value, _PLAIN) and (not _is_tensor(value) or value.numel() > 1)
    }


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "element_size") and hasattr(value, "untyped_storage")


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    """Yield the plain tensors inside a value: of wrappers (quantised tensors), tuples, lists and dicts."""
    if depth > _MOST_NESTED:
        return
    flatten = getattr(value, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from _tensors(getattr(value, name), depth + 1)
    elif _is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for inner in value:
            yield from _tensors(inner, depth + 1)


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
