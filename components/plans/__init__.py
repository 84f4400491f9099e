"""A plan's data on a component, as plain data: objects that differ, findings, and field managers."""
