"""Shared by every room: clock, errors, hooks, request types. No models, imports no app."""
