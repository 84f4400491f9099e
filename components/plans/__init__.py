"""What a plan keeps of a component, as plain data: objects that differ, findings, and who holds what."""
