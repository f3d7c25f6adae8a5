"""The table of what to touch holds: one of each is added in a scratch copy, proved, and removed again."""

from __future__ import annotations

import re

import pytest

from tests.to_add import ROOT, kinds, prove, scratch

ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `[^|]+ \|$", re.MULTILINE)
TABLE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## To add something")[2]
TOLD = dict(ROW.findall(TABLE))


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    with scratch() as root:
        found = prove(root)
        changed = [path for kind in kinds().values() for path in kind.edits]
        assert all((root / path).read_bytes() == (ROOT / path).read_bytes() for path in changed)
        assert not [path for kind in kinds().values() for path in kind.files if (root / path).exists()]
    return found


def test_the_table_names_every_kind_and_no_other() -> None:
    assert set(TOLD) == set(kinds())


@pytest.mark.parametrize("name", kinds())
def test_one_takes_two_files_at_most_and_its_proof_holds(name: str, problems: dict[str, str]) -> None:
    assert kinds()[name].touched == len(re.findall(r"kvscope/|engine/|samples/|playbooks/|tests/", TOLD[name]))
    assert kinds()[name].touched <= 2
    assert problems[name] == ""
