"""What people and other rooms do with rollouts: start, pause, revert, take over, freeze."""
