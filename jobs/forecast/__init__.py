"""Forecast of a plan's effect on its cluster: batches, slots, time, blast radius and findings."""
