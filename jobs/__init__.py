"""Plans, approvals and rollouts, and the engine that carries them out."""
