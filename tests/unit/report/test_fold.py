"""Whatever a target is called and however much is wrong with it, the first 24 lines of 80 columns answer.

The diagnoses are made up, as large as they can be; real pages are read in tests/contract/test_first_report.py.
"""

from __future__ import annotations

import unicodedata
from random import Random

import pytest

from kvscope import report
from kvscope.account import Account
from kvscope.account.account import Limit
from kvscope.finding import Coverage, Diagnosis, Evidence, Experiment, Finding, Gain, Light, Rival, SegmentSummary
from kvscope.vitals import Vital

SIZES = (1, 12, 70, 79, 80, 81, 160, 400)
LIMITS = ("cap", "pool", "demand", "token_budget", "rejected", "deferred")
READ = {
    "running_requests": (3.0, 0.1, "requests"),
    "kv_usage_ratio": (0.5, 0.1, "ratio"),
    "kv_capacity_tokens": (5e6, 0.0, "tokens"),
}
SEEDS = range(30)


class Made:
    """Parts of a diagnosis by chance, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def name(self) -> str:
        """A name without a gap."""
        return self.random.choice(("x", "-a", "模", "é")) * self.random.choice(SIZES)

    def words(self) -> str:
        """A sentence, or a name."""
        word, size = self.random.choice(("set it to 4 ", "缓存 a ", "a/b-c ")), self.random.choice(SIZES)
        return self.random.choice((self.name(), (word * size)[:size].strip()))

    def some(self, most: int) -> range:
        return range(self.random.randint(0, most))

    def check(self) -> Evidence:
        return Evidence(
            self.name(), self.name(), self.words(), "yes", self.random.random(), 0.1, "ratio", source=self.words()
        )

    def finding(self) -> Finding:
        rivals = tuple(Rival("r", self.words(), "unmeasured", self.check(), self.words()) for _ in self.some(3))
        return Finding(
            self.name(),
            self.words(),
            self.random.choice(("confirmed", "likely", "possible", "unexplained")),
            "slug",
            self.words(),
            tuple(self.check() for _ in self.some(3)),
            rivals,
            self.random.choice((None, Gain(self.words(), 1.2, 2.0, self.name()))),
            self.random.choice((None, Experiment(self.words(), (self.words(),), self.words()))),
            tuple(f"FIX{at} {self.words()}" for at in range(self.random.randint(1, 5))),
            onset_s=self.random.choice((None, 1.7e9)),
            notes=self.words(),
        )

    def account(self, segment: str) -> Account:
        running = 10 ** self.random.uniform(-1, 6)
        nothing = {"admission": None, "requests": None, "engine": None}
        return Account(
            segment,
            Limit(self.random.choice(LIMITS), 0.9, "inferred"),
            {**nothing, "admission": {name: self.random.random() for name in LIMITS}, "requests": {"queue": 1.0}},
            {"admission": "inferred", "requests": "counted"},
            "",
            vitals={"running_requests": running, "waiting_requests": running, "kv_usage_ratio": 0.5},
            headroom={"may_run": running * 2, "pool_fits_requests": 10 ** self.random.uniform(-1, 6)},
            replicas={
                f"{self.name()}{at}": Account("now", Limit("cap", 0.5, "counted"), {**nothing}, {}, "")
                for at in self.some(64)
            },
        )

    def diagnosis(self, sick: bool) -> Diagnosis:
        segments = tuple(
            SegmentSummary(f"{self.name()}{at}", 1.7e9 + at, 1.7e9 + at + 60, {}, READ) for at in range(12)
        )[: self.random.randint(1, 12)]
        vitals = tuple(
            Vital(name, name, tuple((self.words(), "") for _ in range(self.random.randint(1, 6))))
            for name in ("load", "tokens", "kv", "ttft", "tpot", "e2e")
        )
        return Diagnosis(
            {"engine": "vllm", "version": "0.32", "target": self.words(), "note": self.words()},
            segments,
            tuple(self.finding() for _ in range(self.random.randint(1, 12) if sick else 0)),
            notices=tuple(self.words() for _ in self.some(12)),
            account=self.account(segments[-1].name),
            coverage=Coverage(91, 22, (), tuple(Light(self.words(), ("a", "b")) for _ in self.some(3))),
            vitals=vitals,
        )


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_line_is_wider_than_the_terminal(seed: int) -> None:
    found = Made(seed).diagnosis(sick=True)
    for width in (60, 80, 120):
        for everything in (False, True):
            text = report.render("text", found, width=width, everything=everything)
            assert [line for line in text.split("\n") if cells(line) > width] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limit_the_room_and_the_whole_first_fix_stand_within_24_lines(seed: int) -> None:
    found = Made(seed).diagnosis(sick=True)
    lines = report.render("text", found, width=80).split("\n")
    top = lines[:24]
    assert any(line.startswith("  limit ") for line in top)
    assert any("room for" in line for line in top)
    begins = next(at for at, line in enumerate(lines) if line.startswith("  fix "))
    ends = next(at for at in range(begins + 1, len(lines)) if not lines[at].startswith(" " * 12) or "FIX1" in lines[at])
    assert ends <= 24


@pytest.mark.parametrize("seed", SEEDS)
def test_a_report_without_a_finding_fits_24_lines_and_says_where_the_rest_is(seed: int) -> None:
    lines = report.render("text", Made(seed).diagnosis(sick=False), width=80).split("\n")
    assert len(lines) <= 24
    assert any(line.startswith("  limit ") for line in lines)
    assert any("room for" in line for line in lines)
    assert "--all tells the rest" in " ".join(lines[-3:]) or lines[-1].endswith("…")
