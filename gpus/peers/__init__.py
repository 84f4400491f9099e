"""Jobs and the nodes that they run on: nodes that are slower at the same job, and each job over its life (`lives`)."""
