"""Pages and REST of the approval policy."""
