"""GPU metrics: vendors' names for them, states, XIDs, boards and MIG slices. No database."""
