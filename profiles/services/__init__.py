"""Drafts and publishing, the library, import of a running node's settings."""
