"""Contract between control plane and agent. Standard library only, so that the agent stays small."""
