"""Pages and REST of calendar rules."""
