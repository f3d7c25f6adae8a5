"""Every metric of the catalogue has a writer, and what a reading lacks names a remedy that works."""

from __future__ import annotations

import argparse
import re
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from kvscope.commands._told import with_told
from kvscope.errors import SourceError
from kvscope.signals.remedies import REMEDIES, SETTINGS, remedy
from kvscope.sources import open_target
from kvscope.sources.stated.figure import Stated, figure_of
from kvscope.store import Store
from probes.catalog import CATALOG, metric_of

ROOT = Path(__file__).parents[2]
WRITERS = ("engine", "probes", "kvscope/sources", "kvscope/bench")
SHOWN = ("scrapes/*.prom",)


@cache
def shown() -> frozenset[str]:
    """The metrics that the samples of this repository hold."""
    found = set()
    for path in (path for pattern in SHOWN for path in (ROOT / "samples").glob(pattern)):
        try:
            with closing(open_target(str(path))) as source:
                found.update(line.name for s in source.poll().samples if (line := metric_of(s.metric)))
        except SourceError:
            continue
    return frozenset(found)


@cache
def written() -> str:
    """What the modules that write metrics say."""
    paths = [path for folder in WRITERS for kind in ("*.py", "*.yaml") for path in (ROOT / folder).rglob(kind)]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.name != "catalog.py")


@pytest.mark.parametrize("metric", CATALOG)
def test_a_metric_has_a_writer_or_a_remedy_of_its_own(metric: str) -> None:
    named = re.search(rf"(?<![\w.]){re.escape(metric)}(?!\w)", written())
    assert named or metric in REMEDIES or metric in shown()


@pytest.mark.parametrize("metric", CATALOG)
def test_a_metric_can_be_stated_as_a_figure_under_its_name(metric: str) -> None:
    assert figure_of(metric, 1.0, "", "", Stated(""))[0].metric == metric


@pytest.mark.parametrize("metric", [name for name in CATALOG if name.startswith("config.")])
def test_a_setting_can_be_told(metric: str) -> None:
    if CATALOG[metric].kind == "info":
        pytest.skip("carries labels: it is told by its engine's own options")
    assert remedy(metric, Store()) == SETTINGS
    options = argparse.Namespace(told=[f"{metric}=1"], beside=[], config=None, gpu=None)
    page = open_target(str(ROOT / "samples/scrapes/vllm-0.32.0.prom"))
    with closing(with_told(page, options)) as source:
        assert [s.value for s in source.poll().samples if s.metric == metric][-1:] == [1.0]
