"""What is generated from the code says what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from kvscope.playbook import load_playbook

PAGES = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs/reference.py"))["pages"]()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run: python docs/reference.py"


def test_the_worked_example_of_the_authors_guide_is_a_good_playbook(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs/playbooks.md").read_text(encoding="utf-8")
    example = guide.partition("## A rule about one segment")[2].partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "queue-behind-cap.yaml"
    path.write_text(example, encoding="utf-8")
    rule = load_playbook(path)
    assert {check.name for check in rule.checks()} == set(rule.thresholds)
