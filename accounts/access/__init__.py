"""Identification of a request: log-in, sessions, API tokens, and form input from before a session ended."""
