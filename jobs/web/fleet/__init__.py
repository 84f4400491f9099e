"""Pages and REST of fleet runs."""
