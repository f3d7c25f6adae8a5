"""Recordings of a matrix's runs, so that playbooks that were changed since judge the very same runs again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kvscope.bench._matrix_run import Outcome, judged
from kvscope.errors import UsageError
from kvscope.playbook_schema import Playbook
from kvscope.recording.reader import Recording
from kvscope.recording.recorder import Recorder
from kvscope.sources._base import Description, Mark, Poll
from kvscope.store import Store
from probes.sample import Sample


def keep(folder: Path, run: Outcome, seen: Store, description: Description) -> None:
    """Write what a run was judged by; a recording of the same run from before is replaced.

    UsageError when the folder cannot be written.
    """
    path = _path(folder, run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {folder}: {error.strerror or error}") from error
    samples = [
        Sample(metric, value, t, labels)
        for metric in seen.metrics()
        for labels in seen.keys(metric)
        for t, value in zip(*seen.series(metric, labels), strict=True)
    ]
    marks = tuple(Mark(segment.name, segment.start_s, segment.tags) for segment in seen.segments)
    with closing(Recorder(path, description)) as recorder:
        recorder.write(Poll(sorted(samples, key=lambda sample: sample.t), marks))


def again(folder: Path, run: Outcome, playbooks: Sequence[Playbook]) -> Outcome:
    """Judge a kept run by these playbooks; SourceError when its recording is not there or not whole.

    What was tried then stays as it was: an experiment cannot be made again.
    """
    with closing(Recording(_path(folder, run))) as recording:
        source, tags = recording.header["source"], recording.header["tags"]
        seen = Store()
        for mark in recording.marks:
            seen.mark(mark)
        seen.add(recording.samples())
    named, folded, unknown = judged(seen, playbooks, Description(**source, tags=tags))
    return replace(run, named=named, folded=folded, unknown=unknown)


def _path(folder: Path, run: Outcome) -> Path:
    return folder / f"{run.label.replace('/', '-')}-{run.seed}.db"
