"""Options with which a person says what a target does not: its log, its model, its device, single settings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.sources._base import Source


def add_told(parser: argparse.ArgumentParser) -> None:
    """--with, --set, --config, --gpu."""
    parser.add_argument(
        "--with",
        dest="beside",
        metavar="LOG",
        action="append",
        default=[],
        help="a server log of the same run, read beside TARGET",
    )
    parser.add_argument(
        "--set",
        dest="told",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting as you know it: config.max_batched_tokens=8192, config.kv_type=fp8, or the engine's own option",
    )
    parser.add_argument("--config", metavar="FILE", help="the model's config.json")
    parser.add_argument("--gpu", metavar="NAME", help="the device, such as H200: its memory")


def with_told(target: Source, options: argparse.Namespace) -> Source:
    """Return the target with all that the options say besides it. UsageError where one means nothing."""
    from pathlib import Path

    from kvscope.errors import UsageError
    from kvscope.sources.beside import beside
    from kvscope.sources.logs.source import LogSource
    from kvscope.sources.settings import Settings, load_model, of_model, of_person

    about = target.describe()
    settings = Settings(about.engine)
    if options.config:
        of_model(settings, load_model(options.config))
    if options.gpu:
        from kvscope.devices import find

        settings.say("config.device_memory_bytes", float(find(options.gpu).memory_bytes), "person", options.gpu)
    of_person(settings, options.told)
    logs = []
    for path in options.beside:
        if not Path(path).is_file():
            raise UsageError(f"--with {path}: no such file; expected a server log")
        logs.append(LogSource(Path(path), follow=about.kind not in ("series", "recording", "log", "trace")))
    return beside(target, logs, settings)
