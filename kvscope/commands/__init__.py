"""One subcommand a file: its docstring is its help, ``configure`` adds its options, ``run`` returns its exit code.

Imports that cost (textual, sources) stand inside ``run``.
"""
