"""Recordings: one session in one SQLite file, to be read again or by somebody else.

A tick is one row, written when it happens, so that a killed process loses nothing it acknowledged. Every 300 s, and at
every mark, the ticks are folded into one compressed chunk per series with its low, high and sum, so that a day of one
series is read in milliseconds and a zoomed-out view unpacks nothing. Samples, marks, tags and the source's description
are all that is stored: no prompt, no completion, no page.
"""

from kvscope.recording.fixture import write_fixture
from kvscope.recording.reader import RecordedMark, Recording, merged, read
from kvscope.recording.recorder import CHUNK_S, Recorder, locked

__all__ = ["CHUNK_S", "RecordedMark", "Recorder", "Recording", "locked", "merged", "read", "write_fixture"]
