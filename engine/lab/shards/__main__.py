"""`python -m engine.lab.shards --ranks N --device cpu|cuda --cells FILE`: runs cells on N ranks, a JSON line each.

Stops its ranks when stdin closes, where --guard says that somebody holds it open. Exit code 3 when a rank was lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.lab.shards.launch import Launcher, RankLostError

EXIT_LOST = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.lab.shards", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cells", type=Path, required=True, help="JSON: a list of cells")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds a rank may not answer (30)")
    parser.add_argument("--logs", type=Path, help="folder for what ranks write to stderr")
    parser.add_argument("--guard", action="store_true")
    options = parser.parse_args()
    cells = json.loads(options.cells.read_text(encoding="utf-8"))
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    launcher = Launcher(options.ranks, options.device, cells, _say, options.timeout, options.logs)
    if options.guard:
        threading.Thread(target=_guard, args=(launcher,), daemon=True).start()
    try:
        launcher.run()
    except RankLostError as lost:
        _say({"lost": str(lost)})
        return EXIT_LOST
    return 0


def _say(fact: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(fact, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _guard(launcher: Launcher) -> None:
    while sys.stdin.read(4096):
        pass
    launcher.stop()


if __name__ == "__main__":
    sys.exit(main())
