"""`kvscope bench load` beside vLLM's own benchmark on one running server: the same load, the two tools taking turns.

    VLLM_CPU_OMP_THREADS_BIND=0 vllm serve MODEL --no-enable-prefix-caching --port 8650      # in vLLM's environment
    taskset -c 1 python -m tests.bench.bench_load http://127.0.0.1:8650 --vllm /path/to/vllm --tokenizer MODEL

Prompts of one length, answers of one length (ignore_eos), one closed loop, temperature 0, no warm-up inside the runs;
each pair has a seed of its own, and the order within a pair alternates. Compared are the tools' medians over the pairs;
beside them stands what each tool differed by from itself (half of most less least, of its median).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

NAMES = ("ttft_p50_s", "tpot_p50_s", "output_tokens_per_s")
BAR = 0.05
TIMEOUT_S = 240


def ours(options: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    """One run of `kvscope bench load`, as a user would start it."""
    out = folder / f"kvscope-{seed}.json"
    command = [
        sys.executable, "-m", "kvscope", "bench", "load", options.url, "--clients", str(options.clients),
        "--mix", f"100:{options.tokens_in}", "--output-tokens", str(options.tokens_out), "--requests",
        str(options.requests), "--warmup", "0", "--watch", options.watch, "--seed", str(seed), "--format", "json",
        "-o", str(out),
    ]  # fmt: skip
    called(command, dict(os.environ))
    found = {one["name"]: float(one["value"]) for one in json.loads(out.read_text())["quantities"]}
    return {name: found[f"c{options.clients}.{name}"] for name in NAMES}


def theirs(options: argparse.Namespace, seed: int, folder: Path) -> dict[str, float]:
    """One run of `vllm bench serve`."""
    command = [
        options.vllm, "bench", "serve", "--backend", "openai", "--base-url", options.url, "--model", options.tokenizer,
        "--served-model-name", options.model, "--dataset-name", "random", "--random-input-len",
        str(options.tokens_in), "--random-output-len", str(options.tokens_out), "--random-range-ratio", "0",
        "--num-prompts", str(options.requests), "--max-concurrency", str(options.clients), "--num-warmups", "0",
        "--ignore-eos", "--temperature", "0", "--seed", str(seed), "--disable-tqdm", "--save-result", "--result-dir",
        str(folder), "--result-filename", f"vllm-{seed}.json",
    ]  # fmt: skip
    called(command, os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    found = json.loads((folder / f"vllm-{seed}.json").read_text())
    if found["completed"] != options.requests or found["total_output_tokens"] != options.requests * options.tokens_out:
        raise SystemExit(f"vllm bench serve: {found['completed']} answers, {found['total_output_tokens']} tokens")
    if abs(found["total_input_tokens"] / (options.requests * options.tokens_in) - 1) > 0.01:
        raise SystemExit(f"vllm bench serve: prompts of {found['total_input_tokens']} tokens in all: not the same load")
    took = (found["median_ttft_ms"] / 1e3, found["median_tpot_ms"] / 1e3, found["output_throughput"])
    return dict(zip(NAMES, took, strict=True))


def called(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])}: {(done.stderr or done.stdout)[-800:]}")


def compared(runs: dict[str, list[dict[str, float]]]) -> bool:
    """Print medians, spreads and ratios; whether all of them are within the bar."""
    tools, agreed = list(runs), True
    print(f"\n{'':22}{tools[0]:>12}{'± itself':>10}{tools[1]:>12}{'± itself':>10}{'ratio':>8}{'least and most':>24}")
    for name in NAMES:
        columns = []
        for tool in tools:
            values = [run[name] for run in runs[tool]]
            columns += [median(values), (max(values) - min(values)) / 2 / median(values)]
        ratio = columns[0] / columns[2]
        each = [a[name] / b[name] for a, b in zip(*runs.values(), strict=True)]
        agreed &= abs(ratio - 1) <= BAR
        print(
            f"{name:22}{columns[0]:12.5g}{columns[1]:10.1%}{columns[2]:12.5g}{columns[3]:10.1%}{ratio:8.3f}"
            f"{min(each):16.3f} {max(each):.3f}"
        )
    return agreed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_load", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--vllm", required=True, help="the vllm command")
    parser.add_argument("--tokenizer", required=True, help="the folder of the served model")
    parser.add_argument("--model", default="tiny-llama", help="the name it is served under")
    parser.add_argument("--watch", default="none", help="what kvscope reads meanwhile: none, or the server's address")
    for name, default in (("pairs", 4), ("clients", 4), ("requests", 40), ("tokens-in", 256), ("tokens-out", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"kvscope": [], "vllm bench": []}
    with tempfile.TemporaryDirectory() as folder:
        ours(options, 999, Path(folder))
        for pair in range(options.pairs):
            tools = [("kvscope", ours), ("vllm bench", theirs)]
            for tool, measure in tools if pair % 2 == 0 else tools[::-1]:
                runs[tool].append(measure(options, pair, Path(folder)))
                words = ", ".join(f"{name} {value:.5g}" for name, value in runs[tool][-1].items())
                print(f"pair {pair + 1}, {tool}: {words}; load {os.getloadavg()[0]:.1f}", flush=True)
    agreed = compared(runs)
    print(f"{'agree' if agreed else 'do not agree'} within {BAR:.0%}")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
