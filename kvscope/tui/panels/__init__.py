"""Panels: each draws one kind of thing that a view can hold. ``kvscope.screens`` says which of them a screen has."""
