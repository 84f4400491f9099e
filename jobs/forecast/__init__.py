"""What a plan does to its cluster before it starts: batches, slots, time, blast radius and findings."""
