"""The one implementation of the port over an API server: calls, pages of lists, patches, evictions, tokens."""
