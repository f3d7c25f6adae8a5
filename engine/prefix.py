"""The prefix cache: full prompt blocks by the hash of everything up to them, kept until their room is needed."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

BlockKey = bytes
REMEMBERED = 1 << 16
"""Keys of blocks remembered beyond their eviction: 10 MiB at most, the oldest forgotten first."""


def block_keys(prompt: Sequence[int], block_tokens: int) -> tuple[BlockKey, ...]:
    """Return one key per full block; a key names the block's tokens and all tokens before them."""
    data = memoryview(array("I", prompt)).cast("B")
    width = block_tokens * array("I").itemsize
    chain = blake2b(digest_size=16)
    keys = []
    for start in range(0, len(data) - width + 1, width):
        chain.update(data[start : start + width])
        keys.append(chain.digest())
    return tuple(keys)


class PrefixCache:
    """Block ids by key, least recently used first. It holds one reference to every block in it (the caller's books)."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[BlockKey, int] = OrderedDict()
        self._runs: set[tuple[BlockKey, ...]] = set()
        self._seen: OrderedDict[BlockKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, keys: Sequence[BlockKey]) -> list[int]:
        """Return the block ids of the longest cached run from the start, and mark them as used now."""
        found = []
        for key in keys:
            if (block := self._blocks.get(key)) is None:
                break
            found.append(block)
        # From the end: a prefix's first block must be the last to go, or what follows it could never be found again.
        for key in reversed(keys[: len(found)]):
            self._blocks.move_to_end(key)
        return found

    def add(self, keys: tuple[BlockKey, ...], blocks: Sequence[int]) -> list[int]:
        """Remember one prompt's full blocks; returns the ids that are new here (each needs a reference)."""
        fresh = [block for key, block in zip(keys, blocks, strict=True) if key not in self._blocks]
        for key, block in zip(keys, blocks, strict=True):
            self._blocks.setdefault(key, block)
        self._runs.add(keys)
        self._seen.update(dict.fromkeys(keys))
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        self.match(keys)
        return fresh

    def seen(self, keys: Sequence[BlockKey]) -> int:
        """How many blocks from a prompt's start were ever added here, whether they are still cached or not."""
        for index, key in enumerate(keys):
            if key not in self._seen:
                return index
        return len(keys)

    def runs(self) -> list[list[int]]:
        """Block ids of every prompt remembered, each from its start as far as it is still cached."""
        self._runs = {keys for keys in self._runs if keys and keys[0] in self._blocks}
        return [self.match(keys) for keys in self._runs]

    def block_ids(self) -> list[int]:
        return list(self._blocks.values())

    def pop_oldest(self, may_go: Callable[[int], bool]) -> int | None:
        """Forget the least recently used block that ``may_go`` (nobody else holds it); its id, or None."""
        for key, block in self._blocks.items():
            if may_go(block):
                del self._blocks[key]
                return block
        return None

    def clear(self) -> list[int]:
        """Forget everything; returns the block ids whose references the caller must drop."""
        ids = self.block_ids()
        self._blocks.clear()
        self._runs.clear()
        return ids
