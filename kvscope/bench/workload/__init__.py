"""What is asked of a server: how long requests are, when they come, what they say."""
