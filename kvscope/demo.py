"""The demo: a session of the built-in engine that plays its script while it is watched, and that script: which two
knobs change at which moments, and what is watched for.
"""

from __future__ import annotations

from dataclasses import replace

from kvscope import signals
from kvscope.finding import Diagnosis
from kvscope.order import Apply, Order, ResetKnobs, SetKnob, ToggleFault
from kvscope.session import Session
from kvscope.session.lab import Controller
from kvscope.signals.reading import Reading
from kvscope.state import State
from kvscope.store import Segment
from kvscope.view import View

LOAD = {"load.clients": "12", "load.documents": "3", "load.document_tokens": "8192", "load.new_tokens": "96"}
KNOBS = {**LOAD, "hot_share": "0.08", "max_running": "8"}
ACTS = ("dense", "compressed", "verified")
SETTLE_S = 1.5
"""After the last document is in the cache: requests must be spread over their lengths, not start in step."""
GIVE_UP_S = 60.0
"""An act that has not led on by then (no finding to apply, no verdict) ends the script."""


class Script:
    """Says what is set and named at which moment; ``act_s``: seconds an act lasts; ``done``: it has ended."""

    def __init__(self, session: Session, control: Controller, act_s: float) -> None:
        self._session, self._control, self._act_s = session, control, act_s
        self._act = "warm-up"
        self._since: float | None = None
        self._finding = ""
        self.status = "Before act 1 of 3: warming up, three documents of 8192 tokens are prefilled once"
        self.done = False

    @property
    def compares(self) -> bool:
        """Whether this act has one before it to be compared with: the first has only the warm-up, which counts not."""
        return self._act not in ("warm-up", ACTS[0])

    def advance(self, view: View) -> None:
        """Do what the script says for the moment of this view."""
        if view.ended:
            self._end("The engine ended before the script did")
        elif self._act == "warm-up":
            self._warm_up(view)
        elif self._act == "dense" and self._lasted(view) >= self._act_s:
            self._control.set({"policy": "combined"}, "compressed")
            self._begin(
                "compressed",
                "Act 2 of 3, compressed: KV goes to int8, a quarter is read; look: KV memory falls, speed too",
            )
        elif self._act == "compressed" and self._lasted(view) >= self._act_s:
            self._propose(view)
        elif self._act == "verified":
            self._judge(view)

    def _warm_up(self, view: View) -> None:
        latest = self._session.store.latest
        wanted = int(LOAD["load.documents"]) * int(LOAD["load.document_tokens"])
        have = int(latest("tokens.prefilled") or 0)
        self.status = f"Before act 1 of 3: prefilling the shared documents, {min(have, wanted)} of {wanted} tokens"
        if have < wanted or (latest("sched.running") or 0) < int(KNOBS["max_running"]):
            self._since = None
        elif self._since is None:
            self._since = view.now_s
        elif view.now_s - self._since >= SETTLE_S:
            self._control.set({}, "dense")
            self._begin(
                "dense",
                "Act 1 of 3, dense: all KV at full precision; look at tokens per second and KV memory: the baseline",
            )

    def _propose(self, view: View) -> None:
        found = self._session.diagnose_now().findings
        ready = [one for one in found if one.verdict == "likely" and one.experiment and one.experiment.set]
        if ready:
            self._finding = ready[0].id
            told = self._session.do(Apply(self._finding, "verified"))
            self._begin("verified", f"Act 3 of 3, the fix: {told}")
        elif self._lasted(view) >= self._act_s + GIVE_UP_S:
            self._end("No finding became likely; look at the findings for what is open")

    def _judge(self, view: View) -> None:
        verdicts = {one.id: one.verdict for one in view.findings}
        verdict = verdicts.get(self._finding, "")
        if verdict in ("confirmed", "refuted") and self._lasted(view) >= self._act_s:
            self._end(f"{self._outcome(view, verdict)}. The engine runs on: look around, q quits")
        elif self._lasted(view) >= self._act_s + GIVE_UP_S:
            self._end("The experiment gave no verdict in time")

    def _outcome(self, view: View, verdict: str) -> str:
        """What the fix brought, beside what compression saved: against the float32 it was kept in, and 16-bit KV."""
        rate = {one.name: one for one in view.headlines}.get("generation_tokens_per_s")
        if verdict != "confirmed" or rate is None or not isinstance(rate.now, Reading):
            return f"The cause is {verdict}"
        before = rate.baseline.value if isinstance(rate.baseline, Reading) else None
        told = f"Fixed: {before:.0f} → {rate.now.value:.0f} tok/s" if before else f"Fixed: {rate.now.value:.0f} tok/s"
        held = [
            signals.compute("kv_resident_bytes", self._session.store, one) for one in self._acts("dense", "verified")
        ]
        if len(held) == 2 and isinstance(held[0], Reading) and isinstance(held[1], Reading) and held[0].value > 0:
            ratio = held[1].value / held[0].value
            told += f", KV {ratio:.2f} of float32 ({2 * ratio:.2f} of what 16-bit KV would hold)"
        return told

    def _acts(self, *names: str) -> list[Segment]:
        segments = {one.name: one for one in self._session.store.segments}
        return [segments[name] for name in names if name in segments]

    def _begin(self, act: str, status: str) -> None:
        self._act, self._since, self.status = act, None, status

    def _lasted(self, view: View) -> float:
        """Seconds of this act, counted from the first view in it."""
        if self._since is None:
            self._since = view.now_s
        return view.now_s - self._since

    def _end(self, status: str) -> None:
        self.done, self.status = True, status


class Demo:
    """Stands where a session stands, and plays the script while it is watched; ``act_s``: seconds an act lasts."""

    def __init__(self, session: Session, control: Controller, act_s: float) -> None:
        self._session = session
        self._script = Script(session, control, act_s)

    @property
    def done(self) -> bool:
        """Whether the script has ended, by itself or because a person took over."""
        return self._script.done

    @property
    def status(self) -> str:
        """What the script is doing, in words."""
        return self._script.status

    def poll(self) -> View:
        """Poll the session, then do what the script says for this moment."""
        view = self._session.poll()
        if not self.done:
            self._script.advance(view)
        if not self.done and not self._script.compares:
            view = _uncompared(view)
        return replace(view, status=view.status or self.status)

    def do(self, asked: Order) -> str:
        """Obey; whoever changes the engine takes over from the script."""
        if isinstance(asked, Apply | SetKnob | ToggleFault | ResetKnobs):
            self._script.done = True
        return self._session.do(asked)

    def result(self) -> Diagnosis:
        """The last diagnosis, without the warm-up: it is discarded, as in any measurement."""
        found = self._session.diagnose_now()
        return replace(found, segments=tuple(one for one in found.segments if one.name in ACTS))

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def _uncompared(view: View) -> View:
    """The view without a baseline, and without findings: before anything was changed none of them is the story."""
    whole = view.token_time
    return replace(
        view,
        diagnosis=replace(view.diagnosis, findings=()) if view.diagnosis else None,
        state=State("reading", "The story begins: nothing was changed yet"),
        headlines=tuple(replace(one, baseline=None, change=None, sure=False) for one in view.headlines),
        accounting=tuple(replace(part, baseline=None) for part in view.accounting),
        token_time=replace(whole, baseline=None, change=None, sure=False) if whole is not None else None,
        trends={name: replace(trend, baseline=None, ghost=()) for name, trend in view.trends.items()},
        segments=tuple(replace(span, is_baseline=False) for span in view.segments),
    )
