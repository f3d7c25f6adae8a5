"""How the packages are cut: private modules stay at home, and no page break is made for a line limit."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 450
MOST_PRIVATE = 30
CONCEPTS = {
    "kvscope.bench._accuracy_table",  # what a table of accuracy shows, beside what is measured
    "kvscope.bench._curve_measure",  # what an engine holds for a request
    "kvscope.plan.engines._vllm_v4",  # one model family's pools
    "kvscope.sources._exchange",  # one exchange over HTTP, within limits
    "kvscope.sources.maps._sglang_tiers",  # metrics of one subsystem
    "kvscope.sources.maps._vllm_connectors",  # metrics of the connectors
}
"""Private modules that one other reads and that are not a page break."""


@cache
def modules() -> dict[str, Path]:
    """Every module of kvscope by its dotted name."""
    paths = sorted((ROOT / "kvscope").rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def importers() -> dict[str, set[str]]:
    """Module → those that import it, at any place in them."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvscope"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[whole if whole in modules() else node.module].add(name)
    return found


def private(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.startswith("_") and not last.startswith("__")


def test_a_private_module_is_imported_inside_its_own_package_only() -> None:
    reached = {
        name: outside
        for name, by in importers().items()
        if private(name) and (outside := {one for one in by if not f"{one}.".startswith(f"{name.rpartition('.')[0]}.")})
    }
    assert reached == {}


def test_a_private_module_with_one_reader_names_a_concept_of_its_own() -> None:
    alone = {name for name, by in importers().items() if private(name) and len(by) == 1}
    assert alone <= CONCEPTS, "say it in the module that reads it"


def test_few_modules_are_private() -> None:
    assert len([name for name in modules() if private(name)]) <= MOST_PRIVATE


def test_a_module_is_as_long_as_one_thing_needs() -> None:
    assert {name: n for name, path in modules().items() if (n := path.read_text().count("\n")) > LONGEST} == {}
