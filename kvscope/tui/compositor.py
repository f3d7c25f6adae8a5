"""The toolkit's compositor, sparing with widgets that did not change: it asks only those under a changed region."""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip

Rendered = tuple[Region, Region, list[Strip]]


class SparingCompositor(Compositor):
    """Draws what the toolkit would.

    Where charts at opposite corners move, the toolkit asks every widget between them for all of its lines and throws
    them away: half of what a tick cost.
    """

    _changed: tuple[Region, ...] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        """What changed since the last frame."""
        self._changed = tuple(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(self, crop: Region | None = None) -> Iterable[Rendered]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        left = list(self._changed)
        for widget, (region, clip) in self.visible_widgets.items():  # the foremost first, and the foremost is seen
            shown = region.intersection(clip)
            here = [one for one in left if shown.overlaps(one)]
            if not here:
                continue
            rows = Region.from_union(here).intersection(shown)
            yield (
                Region(region.x, rows.y, region.width, rows.height),
                clip,
                widget.render_lines(Region(shown.x - region.x, rows.y - region.y, shown.width, rows.height)),
            )
            left = [one for one in left if not shown.contains_region(one)]
