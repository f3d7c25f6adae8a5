"""Widgets drawn line by line: they repaint only the cells that changed."""
