"""Screens: the dashboard, one finding in full, a question, the help."""
