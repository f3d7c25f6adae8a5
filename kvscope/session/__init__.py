"""A session watches one source: it polls, marks, applies experiments, records, and gives a frozen view each tick."""

from kvscope.session.session import Session

__all__ = ["Session"]
