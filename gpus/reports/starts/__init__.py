"""Start times of pods with GPUs: one by one, summed up by group, and each node against others."""
