"""What the layers of a transformers cache really hold: bytes and entries read from the tensors, never from the config.

Nothing is imported: a tensor is what has ``numel``, ``element_size`` and ``untyped_storage``. Reading never waits for a
device: only shapes are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
