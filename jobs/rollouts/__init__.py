"""Actions of people and other rooms on rollouts: start, pause, revert, take over, freeze."""
