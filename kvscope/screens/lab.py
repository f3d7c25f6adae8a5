"""The built-in engine as a laboratory: turn a knob or start a fault, and watch what it does."""

from __future__ import annotations

from kvscope import faults
from kvscope.order import Order, ResetKnobs, SetKnob, ToggleFault
from kvscope.screens import Cell, Chart, Key, Screen
from kvscope.screens.reader import Reader
from kvscope.view import Table


def _chosen(which: str, key: str, row: tuple[Cell, ...]) -> Order:
    """A knob is turned from the value it has, a fault started or ended."""
    if which == "table":
        return SetKnob(key, str(row[1]))
    fault = faults.get(key)
    sets = "\n".join(f"{name} = {value}" for name, value in fault.knobs.items())
    return ToggleFault(key, bool(row[0]), f"{fault.says}\n{sets}")


def _knobs(reader: Reader) -> Table:
    return reader.lab.knobs() if reader.lab else Table()


def _faults(reader: Reader) -> Table:
    return reader.lab.faults() if reader.lab else Table()


SCREEN = Screen(
    title="Lab",
    order=100,
    help="The built-in engine as a laboratory: turn a knob or start a fault with Enter, u puts everything back.",
    facts=(
        "generation_tokens_per_s",
        "tpot_p50_s",
        "ttft_p50_s",
        "kv_resident_bytes",
        "right_token_share",
        "waiting_requests",
    ),
    charts=(Chart("Throughput and memory", (("generation_tokens_per_s",), ("kv_resident_bytes",))),),
    table=("Knobs and load: Enter changes", _knobs),
    beside=("Faults: Enter starts and ends", _faults),
    chosen=_chosen,
    keys=(Key("u", "Put back", ResetKnobs()),),
)
