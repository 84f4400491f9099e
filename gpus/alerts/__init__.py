"""Alert rules about GPUs, and their export as PromQL."""
