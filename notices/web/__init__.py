"""Pages and REST of alerts, rules and channels."""
