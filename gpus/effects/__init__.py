"""Effects of rollouts on GPUs: studies before and after, their estimates, and the gates of a measured rollout."""
