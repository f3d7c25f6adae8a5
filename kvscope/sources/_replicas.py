"""What a fleet's samples have in common: the label that says which replica spoke, and one description for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvscope.sources.source import Description
from probes.catalog import REPLICA
from probes.sample import Labels, Sample

_FEW = 1024
"""Label sets are forgotten when they are more than these and twice as many as are in use: most of them ended."""


class Labeller:
    """Adds the label ``replica`` to samples; label sets come again and again, so each is built once."""

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self._known: dict[Labels, Labels] = {}

    def __call__(self, samples: Iterable[Sample]) -> list[Sample]:
        """Return the samples as this replica's."""
        known = self._known
        found = []
        for metric, value, t, labels in samples:
            if labels not in known:
                known[labels] = self._named(labels)
            found.append(Sample(metric, value, t, known[labels]))
        if len(known) > max(_FEW, 2 * len(found)):
            known.clear()
        return found

    def _named(self, labels: Labels) -> Labels:
        # Several that answer behind one of a fleet's addresses are told apart there already.
        inner = [value for name, value in labels if name == REPLICA]
        rest = [pair for pair in labels if pair[0] != REPLICA]
        return tuple(sorted((*rest, (REPLICA, " ".join([self.replica, *inner])))))


def describe(kind: str, target: str, tags: Mapping[str, Mapping[str, str]], answered: int, members: int) -> Description:
    """Describe a fleet by what its replicas (name → tags) agree in; what they differ in is named in the note."""
    common: dict[str, str] = {}
    differ = []
    names = dict.fromkeys(tag for one in tags.values() for tag in one)
    for name in names:
        values = dict.fromkeys(one.get(name, "") for one in tags.values())
        if len(values) == 1:
            common[name] = next(iter(values))
        else:
            differ.append(f"{name} {', '.join(value or 'unknown' for value in values)}")
    common["replicas"] = str(members)
    note = f"{members} replicas" + ("" if answered == members else f", {members - answered} silent")
    if differ:
        note += f"; they differ in {'; '.join(differ)}"
    engine = common.get("engine", "several engines")
    return Description(kind, target, engine, common.get("version", ""), common, alive=answered > 0, note=note)
