"""Options with which a person says what a target does not: its log, its model, its device, single settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.compare import Said
    from kvscope.sources.source import Source

COMPARED_TAGS = ("engine", "version", "model", "device", "workload", "offered_load", "cap", "policy", "dtype")
"""What two runs may differ in and a comparison asks about."""


def add_told(parser: argparse.ArgumentParser) -> None:
    """--with, --set, --config, --gpu."""
    parser.add_argument(
        "--with",
        dest="beside",
        metavar="LOG",
        action="append",
        default=[],
        help="a server log or KV events of the same run, read beside TARGET",
    )
    parser.add_argument(
        "--set",
        dest="told",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting as you know it: config.max_batched_tokens=8192, config.kv_type=fp8, or the engine's own option",
    )
    parser.add_argument("--config", metavar="FILE", help="the model's config.json: what it keeps and reads")
    parser.add_argument("--gpu", metavar="NAME", help="the device, such as H200: its memory and peaks")
    add_price(parser)


def add_price(parser: argparse.ArgumentParser) -> None:
    """--price."""
    parser.add_argument(
        "--price", type=float, metavar="P", help="what an hour of the machine costs: then a million tokens have a price"
    )


def price_of(options: argparse.Namespace) -> float | None:
    """Return the price of an hour; UsageError where it is none."""
    import math

    from kvscope.errors import UsageError

    price: float | None = getattr(options, "price", None)
    if price is not None and not 0 < price < math.inf:
        raise UsageError(f"--price {price:g}: expected more than 0, the cost of an hour")
    return price


def add_compared(parser: argparse.ArgumentParser) -> None:
    """--baseline, --segments, --same, --changed."""
    parser.add_argument("--baseline", metavar="TARGET", help="compare with this target (read before TARGET)")
    parser.add_argument("--segments", metavar="BASELINE,CURRENT", help="compare these two marked segments of TARGET")
    add_said(parser)


def add_said(parser: argparse.ArgumentParser) -> None:
    """--same, --changed."""
    parser.add_argument(
        "--same", metavar="NAME,…", default="", help="what you know stayed the same in both: device, model, workload, …"
    )
    parser.add_argument("--changed", metavar="NAME,…", default="", help="what you know was changed between the two")


def tags_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return tags from ``key=value`` texts; UsageError for one that is none, or too long to be a tag."""
    from kvscope.errors import UsageError

    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip() or len(text) > 200:
            raise UsageError(f"{option} {text!r}: expected KEY=VALUE, such as workload=chat")
        found[key.strip()] = value.strip()
    return found


def said_of(options: argparse.Namespace) -> Said:
    """Return what the options say of the two sides. UsageError for a name that no rule asks about."""
    from kvscope.compare import Said
    from kvscope.errors import UsageError, nearest

    sides = []
    for option, text in (("--same", options.same), ("--changed", options.changed)):
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in COMPARED_TAGS:
                known = ", ".join(COMPARED_TAGS)
                raise UsageError(f"{option} {name!r}{nearest(name, COMPARED_TAGS)}; expected some of {known}")
        sides.append(frozenset(names))
    return Said(*sides)


def with_told(target: Source, options: argparse.Namespace) -> Source:
    """Return the target with all that the options say besides it. UsageError where one means nothing."""
    from pathlib import Path

    from kvscope.errors import UsageError
    from kvscope.sources.beside import beside
    from kvscope.sources.find import kind_of_file
    from kvscope.sources.kv_events import EventsSource, WithEvents
    from kvscope.sources.logs.source import LogSource
    from kvscope.sources.settings import Settings, load_model, of_model, of_person

    about = target.describe()
    settings = Settings(about.engine)
    if options.config:
        of_model(settings, load_model(options.config))
    if options.gpu:
        from kvscope.devices import find

        settings.say("config.device_memory_bytes", float(find(options.gpu).memory_bytes), "person", options.gpu)
    price = price_of(options)
    if price is not None:
        settings.say("config.price_per_hour", price, "person", f"{price:g}")
    of_person(settings, options.told)
    logs = []
    for path in options.beside:
        if not Path(path).is_file():
            raise UsageError(f"--with {path}: no such file; expected a server log")
        if kind_of_file(Path(path)) == "events":
            target = WithEvents(target, EventsSource(Path(path), alone=False))
            continue
        logs.append(LogSource(Path(path), follow=about.kind not in ("series", "recording", "log", "trace")))
    return beside(target, logs, settings)
