"""Add one of each kind of variant in a scratch copy, run its proof there, and remove it: ``python -m tests.to_add``.

The kinds are those of the table in ``docs/architecture.md``. Where a kind's rules change often, its example is a copy
of one that is there under another name: what is proved is which files it takes. Policies, forms and backends serve a
request: their own tests would compile every kernel of the copy anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "zz_example"
PLAIN = ("-o", "addopts=--strict-markers --import-mode=importlib")
FOLDERS = ("kvscope", "engine", "probes", "playbooks", "samples", "tests", "docs")

MAP = '''"""The page of an example."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = ROLE = "engine"
EXPECTS = "names starting with zz_example"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
FLAGS = ()
MAP = (Entry("zz_example_running", "sched.running", "gauge", "requests"),)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("zz_example") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    return Derived()
'''
PAGE = "# HELP zz_example_running Requests.\n# TYPE zz_example_running gauge\nzz_example_running 3\n"
SOURCE = '''"""One sample, once."""

from __future__ import annotations

from kvscope.sources.source import Description, Poll
from probes.sample import Sample


class ExampleSource:
    def describe(self) -> Description:
        return Description("example", "zz_example", "example")

    def poll(self) -> Poll:
        return Poll([Sample("sched.running", 3.0, 1000.0)], ended=True)

    def close(self) -> None: ...
'''
SOURCE_LINE = """    if text == "zz_example":
        from kvscope.sources.zz_example import ExampleSource

        return ExampleSource()
    path = Path(os.path.expanduser(text))
"""
SIGNAL = """

declare("zz_example", rate("tokens.generated", "tokens.prefilled"), UP, "Tokens of both kinds per second.")
"""
COMMAND = '''"""Say that an example ran."""

from __future__ import annotations

import argparse

GROUP = "set up"


def configure(parser: argparse.ArgumentParser) -> None:
    """Nothing."""


def run(options: argparse.Namespace) -> int:
    print("an example ran")
    return 0
'''
BENCH = '''"""Measure an example."""

from __future__ import annotations

import argparse

from kvscope.result.result import Quantity, Result


def configure(parser: argparse.ArgumentParser) -> None:
    """Nothing."""


def measure(options: argparse.Namespace) -> Result:
    return Result("zz_example", "An example", quantities=(Quantity("one", 1.0, "s", None, "lower"),))
'''
REPORT = '''"""The number of findings."""

from __future__ import annotations

from kvscope.finding import Diagnosis


def render(diagnosis: Diagnosis) -> str:
    return f"{len(diagnosis.findings)} findings"
'''

BACKEND = '''"""This machine posing as a device with plain operators."""

from __future__ import annotations

import torch

from engine.devices._base import Device
from engine.devices._plain import Plain


def open_device(text: str, dtype: str) -> Device:
    return Device(text, torch.device("cpu"), torch.float32, Plain())
'''
SERVED = """
import random
from engine import devices
from engine.knobs import Knobs
from engine.lab.recall import task
from engine.llm import Engine
from engine.weights import open_model

model = open_model("shipped", "cpu")
document = task.make_document(random.Random(3), 300)
prompt = task.prompt(document, next(iter(document.successor)))
told = {"policy": "combined", "hot_share": "0.3", "min_read_tokens": "64", "sink_tokens": "32", "window_tokens": "32"}
knobs = Knobs().with_text({**told, **KNOBS})
said = []
for device in DEVICES:
    made = Engine(model.config, model.model, knobs, pool_bytes=64 << 20, max_context=1024, device=devices.get(device))
    request = made.submit(prompt, 6)
    while made.has_work:
        made.step()
    made.cache.check()
    assert len(request.generated) == 6
    said.append(request.generated)
assert all(one == said[0] for one in said), said
print("served", NAME)
"""
"""An engine answers with an example in use, on every backend named alike; the plain kernels: nothing is compiled."""


def served(devices: tuple[str, ...], **knobs: str) -> tuple[str, str]:
    """The words that have python do so."""
    return "-c", f"KNOBS, DEVICES, NAME = {knobs!r}, {devices!r}, {NAME!r}\n{SERVED}"


@dataclass(frozen=True)
class Kind:
    """``files`` are written (path → text), ``edits`` changed (path → function of the text).

    The proof: ``tests``, a file of them, of which those run that name the ``word``; or ``run``, what python is given,
    which must end in 0 and say ``word``.
    """

    files: dict[str, str]
    edits: dict[str, Callable[[str], str]] = field(default_factory=dict)
    tests: str = ""
    run: tuple[str, ...] = ()
    word: str = NAME

    @property
    def touched(self) -> int:
        return len(self.files) + len(self.edits)


def copied(path: str, *changes: tuple[str, str]) -> str:
    """A variant that is there, under other names."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for old, new in changes:
        assert re.search(old, text, re.MULTILINE), (path, old)
        text = re.sub(old, new, text, flags=re.MULTILINE)
    return text


def kinds() -> dict[str, Kind]:
    """Every kind by its name in the table."""
    rule, screen = "admission-optimistic", "kvscope/screens/tiers.py"
    kvscope = ("-m", "kvscope")
    healthy = "samples/quiet/vllm-healthy.jsonl"
    renamed = (rule, "zz-example")
    chart = '    charts=(\n        Chart("Example", (("hot_reads",),)),\n'
    screens = f"from kvscope.screens import discover\nprint(discover()[{NAME!r}].title)"
    shown = "from kvscope.screens import discover\nprint(discover()['tiers'].charts[0].title)"
    routes = "from engine.serving.routes import routes\nprint(*routes())"
    return {
        "map of an engine's page": Kind(
            {f"kvscope/sources/maps/{NAME}.py": MAP, f"samples/scrapes/{NAME}-1.0.prom": PAGE},
            tests="tests/contract/test_sources.py",
        ),
        "source": Kind(
            {f"kvscope/sources/{NAME}.py": SOURCE},
            {
                "kvscope/sources/__init__.py": lambda text: text.replace(
                    SOURCE_LINE.splitlines(True)[-1], SOURCE_LINE, 1
                )
            },
            run=(*kvscope, "metrics", NAME),
            word="sched.running",
        ),
        "signal": Kind(
            {}, {"kvscope/signals/load.py": lambda text: text + SIGNAL}, tests="tests/unit/signals/test_readers.py"
        ),
        "playbook": Kind(
            {
                "playbooks/zz-example.yaml": copied(f"playbooks/{rule}.yaml", renamed),
                "tests/states/zz-example.yaml": copied(f"tests/states/{rule}.yaml"),
            },
            tests="tests/contract/test_playbooks.py",
            word="zz-example",
        ),
        "command": Kind({f"kvscope/commands/{NAME}.py": COMMAND}, run=(*kvscope, NAME), word="an example ran"),
        "bench": Kind({f"kvscope/bench/{NAME}.py": BENCH}, run=(*kvscope, "bench", NAME), word="An example"),
        "report format": Kind(
            {f"kvscope/report/{NAME}.py": REPORT},
            run=(*kvscope, "diagnose", healthy, "--format", NAME),
            word="findings",
        ),
        "screen": Kind(
            {
                f"kvscope/screens/{NAME}.py": copied(
                    screen, ('title="Tiers"', 'title="Example"'), ("order=80", "order=85")
                )
            },
            run=("-c", screens),
            word="Example",
        ),
        "panel": Kind(
            {}, {screen: lambda text: text.replace("    charts=(\n", chart)}, run=("-c", shown), word="Example"
        ),
        "policy": Kind(
            {f"engine/policies/{NAME}.py": copied("engine/policies/combined.py")},
            run=served(("cpu",), policy=NAME),
            word="served",
        ),
        "form": Kind(
            {f"engine/forms/{NAME}/__init__.py": copied("engine/forms/cold_fp8/__init__.py")},
            run=served(("cpu", NAME), cold_form=NAME),
            word="served",
        ),
        "backend": Kind(
            {f"engine/devices/{NAME}.py": BACKEND}, run=served(("cpu", NAME), cold_form="cold_int8"), word="served"
        ),
        "route": Kind(
            {f"engine/serving/routes/{NAME}.py": copied("engine/serving/routes/health.py", ("/health", f"/{NAME}"))},
            run=("-c", routes),
            word=f"/{NAME}",
        ),
    }


@contextmanager
def added(root: Path, kind: Kind) -> Iterator[None]:
    """Have a kind's example there, and leave no trace of it."""
    before = {path: (root / path).read_text(encoding="utf-8") for path in kind.edits}
    for path, text in kind.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for path, change in kind.edits.items():
        changed = change(before[path])
        assert changed != before[path], f"{path}: nothing to hang the example on"
        (root / path).write_text(changed, encoding="utf-8")
    try:
        yield
    finally:
        for path in kind.files:
            (root / path).unlink()
            if path.endswith("__init__.py"):
                shutil.rmtree((root / path).parent)
        for path, text in before.items():
            (root / path).write_text(text, encoding="utf-8")


@contextmanager
def scratch() -> Iterator[Path]:
    """A copy of the checkout without its history."""
    with tempfile.TemporaryDirectory(prefix="kvscope-to-add-") as folder:
        root = Path(folder)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        shutil.copy(ROOT / "pyproject.toml", root)
        yield root


def python(root: Path, *words: str) -> tuple[int, str]:
    """Run python on a copy; its exit code, and what it said."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def prove(root: Path) -> dict[str, str]:
    """Return what went wrong with each kind's proof, or nothing. The tests of all run together: they start slowly."""
    problems = {}
    with ExitStack() as stack:
        for kind in kinds().values():
            stack.enter_context(added(root, kind))
        tested = {name: kind for name, kind in kinds().items() if kind.tests}
        words = " or ".join(sorted({kind.word for kind in tested.values()}))
        paths = sorted({kind.tests for kind in tested.values()})
        _, said = python(root, "-m", "pytest", "-v", "-p", "no:cacheprovider", *PLAIN, "-k", words, *paths)
        for name, kind in tested.items():
            lines = [line for line in said.splitlines() if line.startswith(kind.tests) and kind.word in line]
            passed = bool(lines) and all(" PASSED" in line or " SKIPPED" in line for line in lines)
            problems[name] = "" if passed else "\n".join(lines) or said[-1500:]
        for name, kind in kinds().items():
            if kind.run:
                code, said = python(root, *kind.run)
                problems[name] = "" if code == 0 and kind.word in said else f"ended with {code}: {said[-1500:]}"
    return problems


def main() -> int:
    """Prove every kind."""
    with scratch() as root:
        problems = prove(root)
    for name, problem in problems.items():
        sys.stdout.write(f"{name}: {problem or 'good'}\n")
    return int(any(problems.values()))


if __name__ == "__main__":
    sys.exit(main())
