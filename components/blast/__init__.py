"""Effect of a component's change on running work: counted against the nodes and GPU pods of a cluster."""
