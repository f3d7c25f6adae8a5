"""One rank: `python -m engine.lab.shards.rank RANK SIZE MEETING DEVICE CELLS RUN TIMEOUT`, started by the launcher.

The first rank prints a JSON line a finished cell; every rank prints which recorder is its own before.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from engine.lab.shards.cells import Cell, read_cells
from engine.lab.shards.group import Group
from engine.lab.shards.instruments import RankRecorder
from engine.lab.shards.lifeline import Lifeline
from engine.lab.shards.measure import measure


def say(**fact: Any) -> None:
    sys.stdout.write(json.dumps(fact, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def main(words: list[str]) -> None:
    rank, size = int(words[0]), int(words[1])
    meeting, kind, cells, run, timeout_s = words[2], words[3], read_cells(Path(words[4])), words[5], float(words[6])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = f"cuda:{rank}" if kind == "cuda" else "cpu"
    if kind == "cuda" and torch.cuda.device_count() < size:
        sys.exit(f"cuda: {torch.cuda.device_count()} GPUs, expected one for each of {size} ranks")
    recorder = RankRecorder(rank, size, kind, run)
    lifeline = Lifeline(rank, recorder.lost)
    say(pid=os.getpid(), ring=str(recorder.ring.path))
    try:
        group = Group.join(rank, size, meeting, device, timeout_s)
        for cell in cells:
            _one(cell, group, recorder)
    except RuntimeError as error:
        # What an exchange raises when another rank is gone. Anything else of this kind is told with its traceback.
        if "CUDA" in str(error) or "Triton" in type(error).__name__:
            raise
        lifeline.end_on_failed_exchange(error)
    recorder.ring.close()
    say(done=True)
    group.leave()


def _one(cell: Cell, group: Group, recorder: RankRecorder) -> None:
    try:
        found = measure(cell, group, recorder)
    except ValueError as error:
        # The same on every rank: nobody is left waiting.
        found = {"error": str(error)}
    if group.rank == 0:
        say(cell=cell.as_json(), found=found)


if __name__ == "__main__":
    main(sys.argv[1:])
