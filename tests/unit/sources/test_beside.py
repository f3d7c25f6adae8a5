"""A page with the log of its run, and with what a person said, is one target."""

from __future__ import annotations

from kvscope.sources.beside import beside
from kvscope.sources.settings import Settings, of_person
from kvscope.sources.source import Description, Poll
from probes.sample import Sample


class Canned:
    def __init__(self, samples, version=""):
        self.samples, self.version = samples, version

    def describe(self):
        return Description("vllm", "here", "vllm", self.version, {"engine": "vllm", "version": self.version})

    def poll(self):
        return Poll(self.samples, ended=True)

    def close(self):
        self.samples = []


def test_a_log_adds_what_the_page_does_not_say():
    page = Canned([Sample("sched.running", 4.0, 1000.0), Sample("sched.running", 4.0, 1001.0)], "0.20+")
    log = Canned(
        [
            Sample("config.graphs", 1.0, 10.0),
            Sample("sched.running", 9.0, 20.0),
            Sample("tokens.generated", 5.0, 20.0),
            Sample("sched.running", 9.0, 1000.5),
            Sample("tokens.generated", 7.0, 1000.5),
        ],
        "0.25.0",
    )
    both = beside(page, [log])
    found = [(one.metric, one.value, one.t) for one in both.poll().samples]
    assert ("config.graphs", 1.0, 1000.0) in found
    assert [value for name, value, _ in found if name == "sched.running"] == [4.0, 4.0]
    assert [value for name, value, _ in found if name == "tokens.generated"] == [7.0]
    assert both.describe().version == "0.25.0"


def test_a_person_s_word_stands_before_the_page_s():
    settings = Settings("vllm")
    of_person(settings, ["sched.max_running=8", "config.kv_type=fp8"])
    page = Canned([Sample("sched.max_running", 4.0, 1.0), Sample("sched.running", 4.0, 1.0)])
    samples = beside(page, settings=settings).poll().samples
    assert [one.value for one in samples if one.metric == "sched.max_running"] == [8.0]
    assert [one.value for one in samples if one.metric == "config.kv_bits"] == [8.0]
