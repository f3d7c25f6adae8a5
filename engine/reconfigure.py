"""What a change of knobs means for what is stored: nothing, other forms, or computing it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import forms, policies
from engine.build import make_cache
from engine.forms import EVICTED, HOT
from engine.knobs import STRUCTURE, Knobs
from engine.scheduler import check_fits

if TYPE_CHECKING:
    from engine.llm import Engine

PLACING = ("policy", "hot_share", "evict_share", "sink_tokens", "window_tokens", "cold_form", "importance")
LOSING = ("policy", "kept_share", "evict_share", "importance")


def reconfigure(engine: Engine, new: Knobs, longest: int = 0) -> None:
    """Give the engine ``new`` knobs between two steps. ValueError where the pool cannot be shaped so,
    or would be too small for a request there is, or for one of ``longest`` tokens."""
    old = engine.knobs
    changed = {name for name in Knobs.__slots__ if getattr(old, name) != getattr(new, name)}
    reshaped = changed & {*STRUCTURE} or (new.pool == "split" and "cold_form" in changed)
    cache = make_cache(engine.config, new, engine.pool_bytes, engine.block_tokens, engine.device) if reshaped else None
    if cache is not None:
        requests = (*engine.scheduler.running, *engine.scheduler.waiting)
        check_fits(max([longest, *(len(one.prompt) + one.max_new_tokens for one in requests)]), cache)
    replace = bool(changed & {*PLACING}) or ("kept_share" in changed and _drops(engine))
    engine.knobs = new
    if replace:
        engine.residency.restart(new)
    engine.scheduler.restart(new, recompute=cache is not None or (replace and _must_recompute(engine, changed)))
    engine.residency.knobs = new
    if cache is not None:
        engine.take(cache)
    elif replace:
        for ids in engine.scheduler.prefix.runs():
            engine.residency.place_prefix(ids)


def _must_recompute(engine: Engine, changed: set[str]) -> bool:
    """Whether something stored has lost what the new settings want: entries that are gone, or too coarse."""
    if not policies.get(engine.knobs.policy).SPARSE:
        return True
    pages = engine.cache.page_counts.sum(0)
    cold = pages.sum() - pages[[forms.NONE, HOT, EVICTED]].sum()
    return bool((changed & {*LOSING} and pages[EVICTED]) or ("cold_form" in changed and cold))


def _drops(engine: Engine) -> bool:
    """Whether the present policy drops what it does not keep, so that its kept share says what is stored."""
    return engine.residency.policy.SPARSE and (
        engine.residency.policy.keep(engine.knobs, engine.cache.geometry.block_tokens) is None
    )
