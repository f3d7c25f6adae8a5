"""The shipped recall model: its task, its training and its measured accuracy."""
