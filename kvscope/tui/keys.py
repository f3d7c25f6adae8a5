"""Every key of the dashboard, once: what it is called, what it says, and the order or action it stands for.

The bar at the bottom, the help, the palette and ``[keys]`` of kvscope.toml are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from kvscope import screens
from kvscope.order import Diagnose, MarkBaseline, NextBaseline, Order, Overlay, Pause, Record, Scrub, Seek, Zoom
from kvscope.view import View


@dataclass(frozen=True, slots=True)
class Key:
    """``does``: an order to the session, or an action of the application; ``shown``: in the bar at the bottom."""

    id: str
    keys: str
    title: str
    says: str
    does: Order | str
    shown: bool = False
    display: str | None = None

    @property
    def binding(self) -> Binding:
        """As the toolkit wants it."""
        action = self.does if isinstance(self.does, str) else f"order('{self.id}')"
        return Binding(self.keys, action, self.title, show=self.shown, id=self.id, key_display=self.display)


KEYS = (
    Key("mark", "b", "Baseline", "Everything so far becomes the baseline, a new segment starts", MarkBaseline(), True),
    Key("mark.named", "m", "Mark", "The same, and the new segment gets a name you type", "name_segment"),
    Key("baseline", "c", "Other baseline", "Compare with another segment", NextBaseline()),
    Key("pause", "space", "Pause", "The view stands still, data are still collected; again: go on", Pause(), True),
    Key("diagnose", "d", "Diagnose", "Ask every playbook at once", Diagnose(), True),
    Key("apply", "a", "Apply", "Change the built-in engine as the finding proposes, then verify", "apply", True),
    Key("profile", "p", "Profile", "How to profile a few steps: a trace lets more rules speak", "profile", True),
    Key("time.shorter", "plus,equals_sign", "Shorter time", "Charts show a shorter stretch", Zoom(-1), display="+"),
    Key("time.longer", "minus", "Longer time", "Charts show a longer stretch", Zoom(1), display="-"),
    Key("time.earlier", "comma", "Earlier", "Go back in time", Scrub(-1), display=","),
    Key("time.later", "full_stop", "Later", "Go forward in time", Scrub(1), display="."),
    Key("time.now", "n", "Back to now", "The newest sample again", Seek()),
    Key("time.onset", "o", "Where it began", "The moment at which the chosen finding began", "onset"),
    Key("time.overlay", "v", "Overlay", "The baseline's curves lie under the current ones", Overlay()),
    Key("record", "r", "Record", "Write everything read into a file; again: stop", Record(), True),
    Key("save", "s", "Save", "The screen as a picture (SVG)", "save", True),
    Key("save.text", "w", "Save as text", "The screen as a text file", "save('txt')"),
    Key("save.json", "x", "Save as JSON", "Every number of the view as JSON", "save('json')"),
    Key("copy", "y", "Copy as text", "The screen into the clipboard", "copy"),
    Key("help", "question_mark", "Help", "Keys and signs", "help", True, "?"),
    Key("quit", "q", "Quit", "Leave the dashboard", "quit", True),
)
BY_ID = {key.id: key for key in KEYS}


_WHILE_IT_RUNS = ("mark", "mark.named", "pause", "diagnose", "record", "time.now")
PROFILED = ("vllm", "sglang")
"""Engines whose own profiler ``kvscope profile`` turns on."""


def idle(view: View | None) -> set[str]:
    """Ids of keys that would do nothing on this target: they are not offered."""
    if view is None:
        return {"profile"}
    found = set() if view.can_apply else {"apply"}
    if view.ended and not view.paused:
        found |= {*_WHILE_IT_RUNS}
    if len(view.segments) < 2:
        found |= {"baseline", "time.overlay"}
    if view.kind not in PROFILED or view.ended or not view.alive or "://" not in view.target:
        found.add("profile")
    if not any(finding.onset_s is not None for finding in view.findings):
        found.add("time.onset")
    return found


def digit(name: str) -> str:
    """The digit that opens a screen: 1 is the overview, 0 the tenth."""
    return str((list(screens.discover()).index(name) + 1) % 10)


def screen_keys() -> tuple[Key, ...]:
    """A digit for every screen, in their order."""
    found = list(screens.discover().items())[:10]
    return tuple(
        Key(f"screen.{name}", digit(name), screen.title, screen.help, f"board('{name}')") for name, screen in found
    )
