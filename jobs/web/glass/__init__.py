"""Pages and REST of break-glass."""
