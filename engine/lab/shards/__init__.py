"""KV of a request spread over ranks: who owns what, choosing and attending together, and what that costs (§5.2.3)."""
