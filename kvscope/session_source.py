"""A source that may fail for a while: errors become lines to read, and the session goes on."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.errors import SourceError
from kvscope.sources._base import Description, Poll, Source


@dataclass(slots=True)
class Patient:
    """Polls ``source`` until it ends; ``failing`` says why the last poll brought nothing."""

    source: Source
    failing: str = ""
    ended: bool = False

    def poll(self) -> Poll:
        """What is new; after an error nothing, with the error as a notice the first time it is met."""
        if self.ended:
            return Poll([], ended=True)
        try:
            found = self.source.poll()
        except SourceError as error:
            fresh = () if str(error) == self.failing else (str(error),)
            self.failing = str(error)
            return Poll([], notices=fresh)
        self.failing = ""
        self.ended = found.ended
        return found

    def describe(self) -> Description:
        """As the source says."""
        return self.source.describe()

    def status(self, has_samples: bool) -> str:
        """Why there is nothing to see, or empty."""
        if self.failing or has_samples:
            return self.failing
        return "The source ended without a sample" if self.ended else "Waiting for the first samples"
