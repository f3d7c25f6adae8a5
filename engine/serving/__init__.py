"""The OpenAI-compatible side of the engine: handlers read and write HTTP, the engine's loop does the work between.

A handler never touches the engine: it posts a `Ticket` to the loop and reads what the loop puts into the ticket.
Prompts and answers are neither logged nor recorded.
"""
