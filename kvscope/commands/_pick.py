"""A bare `kvscope`: the engines found on this machine and the demo, by number."""

from __future__ import annotations

import argparse


def run(options: argparse.Namespace) -> int:
    """Ask which one to open; without a terminal only list them."""
    import sys

    from kvscope.cli import run as run_command
    from kvscope.sources.discover import discover

    found = discover()
    print("kvscope: why did the service not get faster when the KV cache shrank?\n")
    for number, engine in enumerate(found, 1):
        print(f"  {number}  {engine.target:<24} {engine.says}")
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
            return run_command(["demo"])
        if choice.isdecimal() and 0 < int(choice) <= len(found):
            picked = found[int(choice) - 1]
            return run_command(["attach", picked.target])
        print(
            f"{choice!r}: expected a number from 1 to {len(found)}, d or q" if found else f"{choice!r}: expected d or q"
        )
