"""GPU capacity: what fits on which nodes, and what waits for GPUs in which queue."""
