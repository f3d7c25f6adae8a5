"""The words the glossary rules out stand in no identifier, no playbook, no help and no description."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from kvscope import bench, cli, signals
from probes.catalog import CATALOG

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/glossary.md"
KEYS_ONLY = ("keeps", "stays", "vain", "grows", "apart", "touches")
"""Plain words of English that say nothing as the name of a key."""


@cache
def ruled_out() -> tuple[str, ...]:
    rows = [
        line.strip("|").split("|") for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line[:2] == "| "
    ]
    words = {word.strip() for row in rows for word in row[-1].split(",")} - {"not", "", "---"}
    return tuple(sorted(words))


@cache
def pattern() -> re.Pattern[str]:
    words = "|".join(re.escape(word) for word in ruled_out() if word not in KEYS_ONLY)
    return re.compile(rf"\b(?:{words})\b", re.IGNORECASE)


def said(text: str) -> list[str]:
    """The ruled-out words of a text."""
    return pattern().findall(text)


def names(path: Path) -> Iterator[str]:
    """Every name that a module gives to something."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)


def keys(found: object) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield str(key)
            yield from keys(value)
    elif isinstance(found, list):
        for value in found:
            yield from keys(value)


def test_the_glossary_rules_words_out() -> None:
    assert {"thrown out", "vain", "KPI"} <= set(ruled_out())


@pytest.mark.parametrize("package", ["kvscope", "probes"])
def test_no_identifier_says_what_is_ruled_out(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert {str(path.relative_to(ROOT)): found for path in modules if (found := said_by(path))} == {}


def said_by(path: Path) -> list[str]:
    return sorted({name for name in names(path) if said(spaced(name))})


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_playbook_says_what_is_ruled_out(path: Path) -> None:
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if "slug:" not in line)
    assert said(text) == []
    gain = yaml.safe_load(text).get("gain", {})
    assert {*keys(gain)} & {*KEYS_ONLY} == set()


def test_no_help_says_what_is_ruled_out() -> None:
    modules = [ROOT / f"kvscope/commands/{name}.py" for name in cli.command_names()]
    modules += [ROOT / f"kvscope/bench/{name}.py" for name in bench.names()]
    texts = {str(path.relative_to(ROOT)): strings(path) for path in modules}
    assert {name: said(text) for name, text in texts.items() if said(text)} == {}


def strings(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return "\n".join(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def test_no_description_of_a_signal_or_a_metric_says_what_is_ruled_out() -> None:
    texts = {name: str(signals.describe(name)) for name in signals.names()}
    texts |= {metric.name: metric.help for metric in CATALOG.values()}
    assert {name: said(text) for name, text in texts.items() if said(text)} == {}
