"""One call of a model's ``generate`` or one bare forward pass: its steps, when tokens came, what each request saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

REQUEST_COLUMNS = (
    *("t", "latency.ttft", "latency.tpot", "latency.e2e", "latency.prefill_time", "latency.decode_time"),
    *("request.tokens_in", "request.tokens_out", "request.kv_bytes"),
)
_NAN = float("nan")


@dataclass(slots=True)
class Generation:
    """The state of a call.

    ``asked`` is the length of its prompt where the caller gave token ids, ``prompt`` what of it was not in the cache;
    ``seen`` counts the tokens each sequence of the batch has in the cache, padding included.
    """

    started: float
    alone: bool = False
    asked: int = 0
    cache: Any = None
    batch: int = 0
    prompt: int = 0
    seen: int = 0
    kv_bytes: float = _NAN
    in_step: bool = False
    prefill: bool = False
    drafts: bool = False
    token_times: list[float] = field(default_factory=list)
    first_step: float = _NAN
    _step_start: float = 0.0
    _prompt_end: int = 0
    _tokens: int = 0

    def begin(self, now: float, args: Sequence[Any], kwargs: dict[str, Any], held: int) -> None:
        """A forward pass starts; ``held`` tokens are in its cache (asked for at the first pass, and with drafts)."""
        batch, length = _shape(args, kwargs)
        first, drafted = not self.batch, self.drafts
        if first:
            # A prompt may come in chunks, or with drafts behind it; what the caller asked with says where it ends.
            self.prompt = self.asked - held if held < self.asked and not self.alone else length
            self.first_step, self.drafts, self._prompt_end = now, self.prompt < length, held + self.prompt
        if first or drafted:
            self.seen = held
        # Several tokens at once after the prompt are a draft being checked: decode, not prefill.
        self.prefill = self.seen < self._prompt_end and (not first or length > 1 or not held)
        self.drafts = self.drafts or (not self.prefill and length > 1)
        self.batch, self._tokens = batch, batch * length
        self.seen += length
        self.in_step, self._step_start = True, now

    def end(self, now: float, chose_token: bool) -> tuple[bool, float, int]:
        """The step is over: return whether it chose a token, how long it took (s), how many tokens it computed."""
        self.in_step = False
        chosen = chose_token and self.seen >= self._prompt_end
        if chosen:
            self.token_times.append(now)
        return chosen, now - self._step_start, self._tokens


def request_rows(
    call: Generation, now: float, output: Any, model: Any, kwargs: dict[str, Any]
) -> list[dict[str, float]]:
    """Return a finished-request row for every sequence generated; what is not known of one is NaN."""
    sequences = getattr(output, "sequences", output)
    times = call.token_times
    counts = [len(times)] * call.batch
    if times and hasattr(sequences, "tolist"):
        ends = _end_ids(model, kwargs)
        # More new tokens than passes where drafts were accepted.
        new = max(len(times), int(sequences.shape[1]) - call.prompt) if call.drafts else len(times)
        counts = [_until_end(row, ends) for row in sequences[:, -new:].tolist()]
    rows = []
    for count in counts:
        last = times[-1 if call.drafts else count - 1] if times and count else now
        first = times[0] if times and count else _NAN
        rows.append(
            {
                "t": now,
                "latency.ttft": first - call.started,
                "latency.tpot": (last - first) / (count - 1) if count > 1 else _NAN,
                "latency.e2e": last - call.started,
                "latency.prefill_time": first - call.first_step,
                "latency.decode_time": last - first,
                "request.tokens_in": call.prompt or _NAN,
                "request.tokens_out": count or _NAN,
                "request.kv_bytes": call.kv_bytes / call.batch if call.batch else _NAN,
            }
        )
    return rows


def prompt_length(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    """Return how many token ids each sequence was given to ``generate``, or 0."""
    given = next((kwargs[name] for name in ("inputs", "input_ids") if kwargs.get(name) is not None), None)
    shape: Sequence[int] = getattr(given if given is not None else next(iter(args), None), "shape", ())
    return int(shape[1]) if len(shape) == 2 else 0


def _shape(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Return (sequences, tokens of each) of a forward pass's input."""
    given = [kwargs.get("input_ids"), kwargs.get("inputs_embeds"), kwargs.get("decoder_input_ids"), *args[:1]]
    found = next((one for one in given if one is not None and len(getattr(one, "shape", ())) >= 2), None)
    if kwargs.get("decoder_input_ids") is not None:
        found = kwargs["decoder_input_ids"]
    return (int(found.shape[0]), int(found.shape[1])) if found is not None else (1, 1)


def _end_ids(model: Any, kwargs: dict[str, Any]) -> frozenset[int]:
    config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
    ids = kwargs.get("eos_token_id", getattr(config, "eos_token_id", None))
    return frozenset(ids if isinstance(ids, list | tuple) else [ids] if isinstance(ids, int) else [])


def _until_end(row: Sequence[int], ends: frozenset[int]) -> int:
    """Return how many tokens a row has up to its end token, that included; what follows is padding."""
    return next((at for at, token in enumerate(row, 1) if token in ends), len(row))
