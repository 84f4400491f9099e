"""What a rollout did to its GPUs: studies before and after it, their estimates, and the gates of a measured rollout."""
