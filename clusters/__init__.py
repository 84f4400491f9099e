"""Clusters and their nodes: the connection, the watch, rows of what is there, and the port to a cluster."""
