"""GPUs that several pods hold at once: shares that a node offers, and groups of pods that a scheduler makes."""
