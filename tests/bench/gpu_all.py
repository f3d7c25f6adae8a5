"""Every GPU table of docs/benchmarks.md, one after the other: `python -m tests.bench.gpu_all [--only NAME ...]`.

Each table is measured by the module that owns it, in a process of its own and for no longer than it may take; what it
prints is shown and kept in $OUT/gpu_all.txt, all raw figures in $OUT/gpu_all.json (here without $OUT). What needs
packages that are not there, or other GPUs, says so and is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any


@dataclass(frozen=True)
class Stage:
    """``words`` after `python -m`; ``prints``: whether its figures are its output rather than a file."""

    words: tuple[str, ...]
    most_s: float = 300.0
    prints: bool = False


WHOLE = ("1x65536", "8x16384", "8x65536", "64x16384")
TABLES = {
    "attention": Stage(("engine.lab.tables.kernels_cuda", "--forms", "hot", "cold_int8", "--latent"), 400, prints=True),
    "latent": Stage(
        ("engine.lab.tables.kernels_cuda", "--forms", "--batches", "1", "8", "--contexts", "16384", "65536"),
        prints=True,
    ),
    "latent launches": Stage(("tests.bench.gpu_latent", "mla:8x65536", "mla-64:8x65536", "dsa:8x65536")),
    "forms": Stage(("tests.bench.gpu_forms", *WHOLE)),
    "host tier": Stage(("tests.bench.gpu_hosted", "blocks:1x65536", "blocks:8x65536", "rows:1x65536", "rows:8x65536")),
    "engine": Stage(("tests.bench.gpu_engine",), 600),
    "selection": Stage(("tests.bench.gpu_kernels",)),
    "flashinfer": Stage(("tests.bench.gpu_flashinfer",), 600),
    "flex": Stage(("tests.bench.gpu_flex", "8x16384", "8x65536")),
    "correctness": Stage(("tests.bench.gpu_check", "1")),
}


def ran(name: str, stage: Stage, folder: Path) -> dict[str, Any]:
    """Its figures by file, its exit code (None: it ran out of time) and its text."""
    began = monotonic()
    command = [sys.executable, "-m", *stage.words]
    environment = os.environ | {"OUT": str(folder)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=stage.most_s)
        code, text, said = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, text, said = None, *(str(part or b"", "utf-8", "replace") for part in (late.stdout, late.stderr))
    found = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    if stage.prints and code == 0:
        found["printed"] = json.loads(text)
        text = table(found["printed"]["rows"])
    return {
        "command": " ".join(("python", "-m", *stage.words)), "exit": code, "seconds": monotonic() - began,
        "figures": found, "text": text if code == 0 else text + said[-2000:],
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of `kernels_cuda` as a Markdown table: one line a shape and form, a column of microseconds for each path."""
    paths = list(dict.fromkeys(row["path"] for row in rows))
    lines = ["| batch x context | form | " + " | ".join(f"{path} µs (share)" for path in paths) + " |"]
    lines.append("|---" * (2 + len(paths)) + "|")
    for key in dict.fromkeys((row["batch"], row["context"], row["form"]) for row in rows):
        mine = {row["path"]: row for row in rows if (row["batch"], row["context"], row["form"]) == key}
        cells = [f"{1e3 * mine[path]['ms']:.1f} ({mine[path]['share']:.0%})" if path in mine else "" for path in paths]
        lines.append(f"| {key[0]} x {key[1]} | {key[2]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_all", description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(TABLES), choices=list(TABLES), metavar="NAME")
    options = parser.parse_args()
    out, found = Path(os.environ.get("OUT", ".")), {}
    with (out / "gpu_all.txt").open("w") as log:
        for name in options.only:
            with tempfile.TemporaryDirectory() as folder:
                found[name] = ran(name, TABLES[name], Path(folder))
            text = f"## {name}: {found[name]['command']}, exit {found[name]['exit']}, {found[name]['seconds']:.0f} s\n"
            print(text + found[name]["text"], flush=True)
            log.write(text + found[name]["text"] + "\n")
            (out / "gpu_all.json").write_text(json.dumps(found, indent=1))
    return int(any(one["exit"] != 0 for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
