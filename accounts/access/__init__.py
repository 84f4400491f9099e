"""Who sends a request: logging in, sessions, API tokens, and what was typed before a session ended."""
