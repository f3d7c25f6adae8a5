"""A client of OpenAI-compatible servers: streams answers, keeps the time of every token, never a prompt's text."""
