"""The command line: one subcommand a file in `kvscope/commands`, errors to one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from kvscope import commands
from kvscope.discovery import module_names
from kvscope.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_SOURCE, EXIT_USAGE, KvscopeError, UsageError, nearest
from probes.border import Refused, lines_printable
from probes.version import __version__

DESCRIPTION = "Why did the service not get faster when the KV cache shrank? Profile and diagnose LLM inference engines."
EPILOG = """\
TARGET is a URL (http://host:8000, /metrics is found; several with commas; prom+http://host:9090?match=… for a fleet
behind a Prometheus), the pid of a built-in engine or its launcher, or a file by what is in it: a server log, a metrics
page, a saved scrape series ({t, text} a line), a recording (.db, .jsonl), a flight recorder (.ring), a torch profiler
trace, a benchmark's result, figures (kvscope figures new), a Prometheus answer, a CSV; .gz too. A folder, a pattern or
a list of files is one target; - is what is piped in.

exit codes: 0 nothing at or above --fail-on · 1 a finding at or above it (distress that no rule explains is likely)
            2 usage, configuration or playbook · 3 engine down or unreachable, or none · 4 no rule could be judged
            70 a fault of kvscope · 130 interrupted
Without a command: pick among the engines found on this machine, or start the demo.
"""


def command_names() -> tuple[str, ...]:
    """Every subcommand, by file name; imports none of them."""
    return module_names(commands.__path__)


def run(argv: Sequence[str]) -> int:
    """Parse and run; returns the exit code. Results go to stdout, everything said about them to stderr.

    The last guard: whatever was not foreseen ends in one line and ``EXIT_INTERNAL``, never in a traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that knows fewer letters than we use shows their codes; it does not end the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except KvscopeError as error:
        return _told(str(error), error.exit_code)
    except Refused as error:
        return _told(str(error), EXIT_SOURCE)
    except KeyboardInterrupt:
        return _told("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _told(f"{where}{error.strerror or error}", EXIT_USAGE)
    except Exception as error:
        from kvscope import crash

        return _told(crash.report(error, argv), EXIT_INTERNAL)


def _told(line: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"kvscope: {lines_printable(line)}", file=sys.stderr)
    return code


def _run(argv: Sequence[str]) -> int:
    names = command_names()
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        print(
            f"kvscope: no command {argv[0]!r}{nearest(argv[0], names)}; commands: {', '.join(names)}", file=sys.stderr
        )
        return EXIT_USAGE
    # Only the command that was named is imported: the others would be a tenth of a dashboard's start.
    options = _parser(argv[:1] if argv and argv[0] in names else names).parse_args(argv)
    if any(getattr(options, name, None) for name in ("header", "bearer_env", "ca")):
        from kvscope.sources import access

        access.use(options.header, options.bearer_env or "", options.ca or "")
    if options.command is None:
        return _pick()
    return int(_module(options.command).run(options))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"kvscope.commands.{name}")


class _Parser(argparse.ArgumentParser):
    """Ends in one line like every other error, not in a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


_HELP_COLUMNS = 100
"""As wide as help is written; it is not cut where a terminal is wider or narrower."""


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kvscope", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"kvscope {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    groups: dict[str, list[str]] = {}
    for name in names:
        module = _module(name)
        summary, _, rest = (module.__doc__ or "").partition("\n\n")
        told = textwrap.wrap(" ".join(summary.split()), _HELP_COLUMNS - 14) or [""]
        groups.setdefault(module.GROUP, []).append(f"  {name:<11} " + f"\n{' ' * 14}".join(told))
        sub = subparsers.add_parser(
            name,
            description=f"{summary}\n\n{rest}",
            epilog=_examples(module),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if len(names) == 1:
            module.configure(sub)
    parser.usage = "kvscope [-h] [--version] COMMAND …" if len(names) > 1 else None
    page = [line for group, lines in groups.items() for line in (f"{group}:", *lines, "")]
    parser.description = "\n".join([DESCRIPTION, "", *page]).rstrip()
    return parser


def _examples(module: ModuleType) -> str:
    lines = getattr(module, "EXAMPLES", ())
    return "examples:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _pick() -> int:
    """The engines found on this machine and the demo, by number; without a terminal only list them."""
    from kvscope.sources.discover import discover
    from kvscope.watch import told_of

    found = discover()
    print("kvscope: why did the service not get faster when the KV cache shrank?\n")
    vital = told_of(engine.target for engine in found if engine.alive)
    for number, engine in enumerate(found, 1):
        print(f"  {number}  {engine.target:<24} {engine.says}")
        if engine.target in vital:
            print(f"     {vital[engine.target]}")
    print("  d  demo                     a real engine, compressed before your eyes (no GPU needed)")
    print("  q  quit\n\nkvscope --help lists the commands.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return 0
    while True:
        try:
            choice = input("open: ").strip().lower()
        except EOFError:
            return 0
        if choice in ("q", ""):
            return 0
        if choice in ("d", "demo"):
            return run(["demo"])
        if choice.isdecimal() and 0 < int(choice) <= len(found):
            picked = found[int(choice) - 1]
            return run(["attach", picked.target])
        print(
            f"{choice!r}: expected a number from 1 to {len(found)}, d or q" if found else f"{choice!r}: expected d or q"
        )
