"""The former name of ``Samples``."""

from kvscope.signals.samples import WATCH_LONGER
from kvscope.signals.samples import Samples as Window

__all__ = ["WATCH_LONGER", "Window"]
