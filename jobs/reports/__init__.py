"""What pages and REST read about plans and rollouts, each at a fixed number of queries."""
