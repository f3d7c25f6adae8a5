"""DeepSeek V4 in vLLM: pages of several sizes in one block, and compressor states kept as windows of tiny blocks.

    kind of cache        tokens a block   page
    CSA rows (1 of 4)    256              64 rows, rounded up to 576 B
    HCA rows (1 of 128)  256              2 rows, rounded up
    CSA index keys       256              64 keys, rounded up
    window of every layer 64              64 rows, rounded up
    CSA compressors      4                4 states of 2 x width x 2 numbers in 32 bits, and those of the index
    HCA compressors      8                8 states of width x 2 numbers in 32 bits

Compressors keep windows of 8 and 128 tokens, but reserve what is in flight like any window: at a context of 100K that
is most of a request. ``models/deepseek_v4`` and ``_get_packed_kv_cache_groups`` of 0.33.0;
``_get_kv_cache_groups_uniform_groups`` of 0.26.0, which padded pages to those of the full group.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.plan.engines._base import Ask, Layout, Pool, up
from kvscope.plan.layer import Layer

PACKED_SINCE = (0, 27)
BLOCK, WINDOW_BLOCK = 256, 64
CSA_BLOCK, HCA_BLOCK = 4, 8
ALIGN, WIDE_ALIGN = 576, 512
STATE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Bucket:
    """Caches that share a block size and a window: how many layers there are of each page size."""

    tokens: int
    window: int
    pages: dict[int, int]

    @property
    def tuples(self) -> int:
        """The most layers of one page size."""
        return max(self.pages.values())


def layout(ask: Ask, layers: list[Layer], in_flight: int, notes: tuple[str, ...]) -> Layout:
    """Count blocks of the packed groups."""
    buckets = _buckets(ask, layers)
    old = ask.options.release < PACKED_SINCE
    size = _tuples(buckets, old)
    block, blocks = (_padded if old else _packed)(buckets, size, ask.context, in_flight)
    full = buckets[0]
    return Layout(
        growing=block / full.tokens if not old else block * _share(full, full) / full.tokens,
        state_bytes=0,
        request_bytes=blocks * block,
        fill=lambda pool: Pool(int(pool // block / blocks * ask.context), pool // block / blocks),
        rules=(
            *(_says(one, ask.context, in_flight) for one in buckets),
            f"a block is {block} B; a request claims {blocks} blocks",
        ),
        notes=(*notes, "compressor states are windows in vLLM: they reserve what is in flight, for every request"),
    )


def _buckets(ask: Ask, layers: list[Layer]) -> list[Bucket]:
    csa = [layer for layer in layers if layer.kind == "csa"]
    hca = [layer for layer in layers if layer.kind == "hca"]
    row = ask.row(layers[0])
    align = WIDE_ALIGN if ask.forms.key.wide else ALIGN
    window = layers[0].window or 0
    block = ask.options.block_size or BLOCK
    rows: dict[int, int] = {}
    for count, size in (
        (len(csa), up(block // 4 * row, align)),
        (len(csa), up(block // 4 * ask.index(csa[0]), align) if csa else 0),
        (len(hca), up(max(1, block // 128) * row, align)),
    ):
        if count:
            rows[size] = rows.get(size, 0) + count
    found = [Bucket(block, 0, rows)] if rows else []
    found.append(Bucket(WINDOW_BLOCK, window, {up(WINDOW_BLOCK * row, align): len(layers)}))
    width = layers[0].key_dim
    if csa:
        pages: dict[int, int] = {}
        for numbers in (width, csa[0].index):
            size = up(CSA_BLOCK * 2 * numbers * 2 * STATE_BYTES, align)
            pages[size] = pages.get(size, 0) + len(csa)
        found.append(Bucket(CSA_BLOCK, 8, pages))
    if hca:
        found.append(Bucket(HCA_BLOCK, 128, {up(HCA_BLOCK * width * 2 * STATE_BYTES, align): len(hca)}))
    return found


def _claims(bucket: Bucket, context: int, in_flight: int) -> int:
    """Blocks one request claims of each group of a bucket."""
    if not bucket.window:
        return -(-context // bucket.tokens)
    return -(-min(bucket.window - 1 + in_flight, context) // bucket.tokens) + 1


def _tuples(buckets: list[Bucket], old: bool) -> int:
    """Layers a group: what pads least, at least as many as the largest bucket that must stay whole."""
    balanced = [one for one in buckets if len(set(one.pages.values())) == 1]
    counts = [one.tuples for one in (buckets if old else balanced)]
    mixed = [one.tuples for one in balanced if len(one.pages) > 1]
    least = buckets[0].tuples if old else max(mixed, default=0)
    if not least:
        return max(counts)
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _packed(buckets: list[Bucket], size: int, context: int, in_flight: int) -> tuple[int, int]:
    """Block bytes and blocks a request: a block is as large as the widest group."""
    block = blocks = 0
    for one in buckets:
        groups = -(-one.tuples // size) if len(set(one.pages.values())) == 1 else 1
        block = max(block, sum(-(-count // groups) * page for page, count in one.pages.items()))
        blocks += groups * _claims(one, context, in_flight)
    return block, blocks


def _padded(buckets: list[Bucket], size: int, context: int, in_flight: int) -> tuple[int, int]:
    """Until 0.26: a block has a place for each page size of the full group, and claims are summed in bytes."""
    full = buckets[0]
    sizes = sorted(full.pages)
    places = dict(full.pages)
    claimed = 0
    for one in buckets:
        for page, count in one.pages.items():
            fitting = page if one is full else next((wider for wider in sizes if wider >= page), page)
            places[fitting] = max(places.get(fitting, 0), min(count, size) if one is not full else count)
            claimed += count * fitting * _claims(one, context, in_flight)
    whole = sum(page * count for page, count in full.pages.items())
    return sum(page * count for page, count in places.items()), -(-claimed // whole)


def _share(one: Bucket, full: Bucket) -> float:
    return sum(page * count for page, count in one.pages.items()) / sum(
        page * count for page, count in full.pages.items()
    )


def _says(one: Bucket, context: int, in_flight: int) -> str:
    pages = ", ".join(f"{count} x {page} B" for page, count in one.pages.items())
    kind = f"window of {one.window}" if one.window else "rows"
    return f"{kind}, {one.tokens} tokens a block ({pages}): {_claims(one, context, in_flight)} blocks a group"
