"""The README, the manual and the tree of folders cannot drift from the project."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kvscope import errors
from kvscope.cli import command_names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MANUAL = (ROOT / "docs/manual.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
LONGEST = 110


def tree() -> set[str]:
    """Folders that the architecture lists, as paths."""
    block = ARCHITECTURE.split("## The tree", 1)[1].split("```")[1]
    found, parents = set(), []
    for line in block.strip("\n").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0].rstrip("/")
        parents = [*parents[:depth], name]
        found.add("/".join(parents))
    return found


def tracked_folders() -> set[str]:
    """Folders that hold tracked files; below tests and samples one line stands for all."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {str(Path(name).parent) for name in listed.splitlines() if "/" in name}
    folders = {
        "/".join(folder.split("/")[:1]) if folder.startswith(("tests", "samples", "docs")) else folder
        for folder in folders
    }
    # A form is a folder: one line stands for all of them.
    return {re.sub(r"^engine/forms/.*", "engine/forms", folder) for folder in folders if not folder.startswith(".")}


def test_every_folder_is_in_the_tree_and_every_line_of_the_tree_exists() -> None:
    if not (ROOT / ".git").exists():
        return
    assert tree() == tracked_folders()


def test_the_top_level_is_the_one_promised() -> None:
    for name in (
        "pyproject.toml",
        "kvscope",
        "engine",
        "probes",
        "playbooks",
        "tests",
        "samples",
        "CHANGELOG.md",
        "LICENSE",
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("text", [README, MANUAL], ids=["readme", "manual"])
def test_every_command_that_is_shown_exists(text: str) -> None:
    blocks = "\n".join(text.split("```")[1::2])
    shown = {*re.findall(r"^kvscope ([a-z]+)", blocks, re.MULTILINE), *re.findall(r"`kvscope ([a-z]+)", text)}
    assert shown
    assert shown <= set(command_names())


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert README.count("\n") <= LONGEST
    assert all((ROOT / name).exists() for name in re.findall(r"\]\(([^)#]+)", README))


def test_the_exit_codes_are_the_documented_ones() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert documented == {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
