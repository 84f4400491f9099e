"""Data about plans and rollouts for pages and REST, each at a fixed number of queries."""
