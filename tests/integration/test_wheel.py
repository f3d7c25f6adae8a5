"""The wheel runs outside the checkout and beside packages of others that are called `engine` and `probes`, too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "samples/captures/admission-limited/pages.jsonl.gz"
FOREIGN = "raise SystemExit('a foreign package was loaded')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of site-packages with nothing but the wheel."""
    where = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(where)!r}))"
    built = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    site = where / "site"
    with zipfile.ZipFile(where / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site)
    return site


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder to be in, with packages of others."""
    for name in ("engine", "probes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(FOREIGN)
    return tmp_path


def ran(site: Path, cwd: Path, code: str, *, foreign_first: bool) -> subprocess.CompletedProcess[str]:
    """Run code as an installed program would: what is on its path, and a .pth that was read."""
    start = f"import site; site.addsitedir({str(site)!r})\n"
    path = str(cwd) if foreign_first else ""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": path}
    command = [sys.executable, "-P", "-S", "-c", _own_packages() + start + code]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def _own_packages() -> str:
    """This environment's packages without its .pth files: an editable kvscope among them would be found first."""
    return f"import sys; sys.path += {[one for one in sys.path if one.endswith('site-packages')]!r}\n"


@pytest.mark.parametrize("foreign_first", [False, True])
def test_the_wheel_diagnoses_beside_foreign_packages(site: Path, elsewhere: Path, foreign_first: bool) -> None:
    code = f"from kvscope.cli import run; run(['diagnose', {str(CAPTURE)!r}]); import kvscope; print(kvscope.__file__)"
    done = ran(site, elsewhere, code, foreign_first=foreign_first)
    assert done.returncode == 0, done.stderr
    assert "admission-capped" in done.stdout
    assert done.stdout.split()[-1].startswith(str(site))


def test_the_engines_child_is_ours_wherever_it_is_started_from(site: Path, elsewhere: Path) -> None:
    code = (
        "import subprocess, sys\nfrom kvscope.sources.builtin import environment\n"
        "code = 'import engine, probes; print(engine.__file__); print(probes.__file__)'\n"
        "sys.exit(subprocess.run([sys.executable, '-P', '-c', code], env=environment()).returncode)"
    )
    done = ran(site, elsewhere, code, foreign_first=True)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(site / "kvscope/_bundled")) for line in done.stdout.split())


def test_a_process_that_loaded_anothers_package_is_told_in_a_line(site: Path, elsewhere: Path) -> None:
    (elsewhere / "probes" / "__init__.py").write_text("")
    done = ran(site, elsewhere, "import probes\nimport kvscope", foreign_first=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "import kvscope before it" in done.stderr


def test_an_engine_that_does_not_import_kvscope_finds_the_probes(site: Path, tmp_path: Path) -> None:
    done = ran(site, tmp_path, "import probes; print(probes.__file__)", foreign_first=False)
    assert done.stdout.startswith(str(site / "kvscope/_bundled"))


def test_nothing_of_ours_lies_at_the_top_but_one_package(site: Path) -> None:
    top = {one.name for one in site.iterdir() if not one.name.endswith(".dist-info")}
    assert top == {"kvscope", "kvscope.pth"}
