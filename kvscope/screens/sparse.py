"""What decode reads of the KV against what it was asked to read, and what choosing costs."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from kvscope.screens import Chart, Screen
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table

_NO_LENGTHS = Missing("no source reports sparse.entries_read with batch.context_tokens", "probes in the engine")
_COLUMNS = (("context up to", "tokens"), ("share read", "ratio"), ("moments", ""))


def by_context(reader: Reader) -> Table:
    """Share of the entries that was read, by the batch's mean context, in powers of two."""
    segment, store = reader.current, reader.store
    if segment is None:
        return Table(_COLUMNS, _NO_LENGTHS)
    times, read = store.series("sparse.entries_read", (), segment.start_s)
    whole = store.series("sparse.entries_total", (), segment.start_s)[1]
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (_, end), (r0, r1), (w0, w1) in zip(pairwise(times), pairwise(read), pairwise(whole), strict=False):
        context = store.latest("batch.context_tokens", (), end)
        if context and w1 > w0 and r1 >= r0:
            groups[max(int(context) - 1, 1).bit_length()].append((r1 - r0, w1 - w0))
    if not groups:
        return Table(_COLUMNS, _NO_LENGTHS)
    rows = [
        (float(2**power), sum(r for r, _ in pairs) / sum(w for _, w in pairs), float(len(pairs)))
        for power, pairs in sorted(groups.items())
    ]
    return Table(_COLUMNS, tuple(rows), ("by the mean context of the batch, current segment",))


SCREEN = Screen(
    title="Sparse",
    order=70,
    needs=("sparse.entries_read",),
    help="What decode reads of the KV against what it was asked to read, and what choosing costs.",
    facts=(
        "sparse_hit_rate",
        "kept_share_target",
        "hit_rate_over_target",
        "index_share",
        "gather_share",
        "entries_read_per_token",
        "layer_hit_rate_spread",
        "right_token_share",
    ),
    charts=(
        Chart("Sparse hit rate", (("sparse_hit_rate",),)),
        Chart("Cost of choosing and collecting", (("index_share", "gather_share"),)),
    ),
    table=("Share read by context", by_context),
)
