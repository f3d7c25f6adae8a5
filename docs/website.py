"""What the documentation site has beside the files of this folder: README, changelog, and screens drawn by the build.

A hook of MkDocs (mkdocs.yml): ``pip install -c constraints.txt '.[docs]' && mkdocs build --strict``. The screens are
those of ``kvscope replay`` on a capture in samples/, drawn without a terminal; nothing on them is made up.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import closing
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.tui.app import KvscopeApp

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = "samples/captures/admission-limited/pages.jsonl.gz"
SCREENS = {"overview": (), "finding": ("2",)}
"""Picture → the keys pressed before it is taken."""
SIZE = (130, 38)
LIMIT_S = 60.0
PAGES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that are made here; leave out what is no page."""
    for page, source in PAGES.items():
        text = _links((ROOT / source).read_text(encoding="utf-8"))
        if page == "index.md":
            text += "".join(f"\n\n![The {name} screen on {CAPTURE}](images/site/{name}.svg)" for name in SCREENS)
        files.append(File.generated(config, page, content=text))
    for name, drawing in asyncio.run(_drawn()).items():
        files.append(File.generated(config, f"images/site/{name}.svg", content=drawing))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links from within docs/ to the pages above, as they are called here; a folder is named and not linked."""
    for made, source in PAGES.items():
        markdown = markdown.replace(f"](../{source})", f"]({made})")
    return re.sub(r"\[([^\]]+)\]\((images/[^).]*)\)", r"\1 (`docs/\2`)", markdown)


def _links(text: str) -> str:
    """Links as they are from within docs/; what lies outside of it is named and not linked."""
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    text = text.replace("](CONTRIBUTING.md)", "](contributing.md)").replace("](CHANGELOG.md)", "](changelog.md)")
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|samples/[^)]*|playbooks/[^)]*)\)", r"\1", text)


async def _drawn() -> dict[str, str]:
    """Each screen as SVG. TimeoutError when the first diagnosis does not come."""
    os.environ["XDG_STATE_HOME"] = os.devnull
    found = {}
    with closing(Session(open_target(str(ROOT / CAPTURE)), load_all())) as session:
        app = KvscopeApp(session, interval_s=0.5)
        async with app.run_test(size=SIZE) as pilot:
            for _ in range(int(LIMIT_S / 0.2)):
                if app.view is not None and app.view.diagnosis is not None:
                    break
                await asyncio.sleep(0.2)
            else:
                raise TimeoutError(f"no diagnosis of {CAPTURE} in {LIMIT_S:.0f} s")
            for name, keys in SCREENS.items():
                if keys:
                    await pilot.press(*keys)
                await asyncio.sleep(1.0)
                await pilot.pause()
                found[name] = app.export_screenshot(title=f"kvscope replay {CAPTURE}")
    return found
