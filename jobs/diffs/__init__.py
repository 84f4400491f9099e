"""Changes of a plan on a node and in a cluster, as plain data: differences, their order, and what changed since."""
