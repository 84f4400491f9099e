"""What control plane and agent agree on. Standard library only, so that the agent stays small."""
