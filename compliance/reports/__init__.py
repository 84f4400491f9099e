"""What pages, REST and exports read about compliance, each at a fixed number of queries."""
