"""The child process of the accuracy benches: one order as JSON on standard input, JSON lines on standard output.

An order names a ``job`` (a file in `engine.lab.accuracy.jobs`), a ``model`` and ``threads``. Lines are {"says"} for
progress, {"row"} for results, and {"error"} for what is wrong with the order.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> int:
    order = json.load(sys.stdin)
    try:
        import torch

        from engine.lab.accuracy import jobs
        from engine.weights import open_model

        torch.set_num_threads(int(order.get("threads", 1)))
        job = jobs.get(str(order["job"]))
        _say({"says": f"loading {order['model']}"})
        loaded = open_model(str(order["model"]))
        for row in job.run(order, loaded, lambda text: _say({"says": text})):
            _say({"row": row})
    except (ValueError, FileNotFoundError) as error:
        _say({"error": str(error)})
        return 2
    return 0


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
