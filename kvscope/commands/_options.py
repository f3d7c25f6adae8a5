"""Options that several subcommands share, and the settings they end in."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.errors import UsageError
from probes.border import lines_printable

if TYPE_CHECKING:
    from kvscope.config import Settings

TARGET_HELP = (
    "URL (several with commas), prom+http://HOST:PORT, a list of them (file_sd:, http_sd+, dns:, k8s:), pid, or files: "
    "server log, page, saved scrapes, recording, flight recorder, profiler trace, benchmark's result, figures; a "
    "folder, a pattern, - for what is piped in"
)


def add_target(parser: argparse.ArgumentParser) -> None:
    """The thing to read."""
    parser.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    add_access(parser)


def add_access(parser: argparse.ArgumentParser) -> None:
    """Who we are to an address, and whom we trust."""
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="send this with every request for a page"
    )
    parser.add_argument("--bearer-env", metavar="VAR", help="send the token that this environment variable holds")
    parser.add_argument("--ca", metavar="FILE", help="trust the certificates in this file (PEM)")


def add_report(parser: argparse.ArgumentParser) -> None:
    """How a diagnosis is printed and what it does to the exit code."""
    parser.add_argument("--format", help="text, json, markdown, html, sarif or junit (default text)")
    parser.add_argument(
        "--fail-on", dest="fail_on", metavar="VERDICT", help="exit 1 at this verdict or a stronger one (likely)"
    )
    parser.add_argument("--all", action="store_true", help="tell everything: silent rules, what could not be known")
    add_slo(parser)
    add_playbooks(parser)


def add_listing(parser: argparse.ArgumentParser) -> None:
    """How a list is printed."""
    parser.add_argument("--format", help="text or json (text)")


def as_json(rows: object) -> str:
    """A listing for programs."""
    import json

    return json.dumps(rows, indent=1, ensure_ascii=False)


def add_slo(parser: argparse.ArgumentParser) -> None:
    """Promises about latency."""
    parser.add_argument(
        "--slo", metavar="PROMISES", help="what the 95th percentiles may take, as ttft=1s,tpot=50ms,e2e=20s"
    )


def add_playbooks(parser: argparse.ArgumentParser) -> None:
    """A folder of the user's own playbooks."""
    parser.add_argument("--playbooks", metavar="DIR", help="also use the playbooks in this folder")


def add_timing(parser: argparse.ArgumentParser, *, duration: bool = True) -> None:
    """How long and how often to look."""
    if duration:
        parser.add_argument("--duration", type=float, metavar="S", help="seconds to watch a live target (15)")
    parser.add_argument("--interval", type=float, metavar="S", help="seconds between two polls (1)")


def settings_of(options: argparse.Namespace) -> Settings:
    """Merge this command's flags with environment, file and defaults."""
    from dataclasses import fields

    from kvscope.config import Settings, load

    return load({field.name: getattr(options, field.name, None) for field in fields(Settings)})[0]


def output(text: str, options: argparse.Namespace, *sources: str) -> Path:
    """Return the file that a command may write. UsageError where it is there and ``--force`` is not, where it is no
    regular file (a device would be replaced by a file), or where it is one of what is read."""
    path = Path(text)
    shown = lines_printable(str(path))
    try:
        about = path.stat()
    except OSError:
        return path
    except ValueError as error:
        raise UsageError(f"{shown}: no name that a file can have ({error})") from None
    if not stat.S_ISREG(about.st_mode):
        raise UsageError(f"{shown}: no regular file; expected a file to write")
    if not options.force:
        raise UsageError(f"{shown}: exists already; choose another file or add --force")
    for source in sources:
        try:
            same = Path(source).samefile(path)
        except (OSError, ValueError):
            same = False
        if same:
            raise UsageError(f"{shown}: this is what is read; choose another file to write")
    return path


def text_or_json(settings: Settings) -> bool:
    """Whether JSON is asked for, by a command that has no other format than text and JSON. UsageError for others."""
    from kvscope.errors import UsageError, nearest

    known = ("text", "json")
    if settings.format not in known:
        raise UsageError(f"--format {settings.format!r}{nearest(settings.format, known)}; expected text or json")
    return settings.format == "json"
