"""Nodes that are slower at the same job than nodes with the same GPUs."""
