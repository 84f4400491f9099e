"""Lists and watches of the cluster, followed by one process each, and what finds out where rows are not true."""
