"""Pages and REST of active checks."""
