"""Content of a revision, as plain data with a digest: what it wants of nodes and of the cluster."""
