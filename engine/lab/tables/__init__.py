"""Operators and probes timed, one table a file; each prints JSON."""
