"""The demo's report says what the README promises: `python .ci/check_demo.py REPORT.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(path: str) -> None:
    """Exit 1 with the first promise that does not hold."""
    report = json.loads(Path(path).read_text())
    acts = {segment["name"]: segment["signals"] for segment in report["segments"]}
    first = report["findings"][0]
    dense, compressed, verified = (acts[name] for name in ("dense", "compressed", "verified"))
    tokens = [act["generation_tokens_per_s"]["value"] for act in (dense, compressed, verified)]
    share = compressed["kv_resident_bytes"]["value"] / dense["kv_resident_bytes"]["value"]
    right = [act["right_token_share"]["value"] for act in (dense, compressed)]
    print(
        f"resident KV × {share:.3f}; tokens/s {tokens[0]:.0f} → {tokens[1]:.0f} → {tokens[2]:.0f}; right {right[1]:.4f}"
    )
    promises = {
        "the finding is confirmed": (first["id"], first["verdict"]) == ("memory-down-throughput-flat", "confirmed"),
        "every rival is excluded by a number": all(
            rival["state"] == "excluded" and rival["value"] is not None for rival in first["rivals"]
        ),
        "resident KV falls to 0.40 or less": share <= 0.40,
        "throughput does not rise by a tenth": tokens[1] <= 1.1 * tokens[0],
        "the change gives half as much again": tokens[2] >= 1.5 * tokens[1],
        "answers stay right": right[1] >= right[0] - 0.02,
        "something waits in every act": all(
            act["waiting_requests"]["value"] >= 1 for act in (dense, compressed, verified)
        ),
    }
    if broken := [promise for promise, kept in promises.items() if not kept]:
        sys.exit(f"the demo breaks its promise: {', '.join(broken)}: {_told(first)}")


def _told(finding: dict[str, Any]) -> str:
    return f"first finding {finding['id']} {finding['verdict']}"


if __name__ == "__main__":
    main(sys.argv[1])
