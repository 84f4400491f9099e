"""Pages and REST of start times."""
