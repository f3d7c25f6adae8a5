"""Measuring points of an engine and the flight recorder they write to; standard library only."""
