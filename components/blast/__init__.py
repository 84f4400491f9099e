"""What a component's change does to running work: counted against the nodes and GPU pods of a cluster."""
