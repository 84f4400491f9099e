"""What pages and REST read: tallies, the heatmap, bands of states, health, data quality, sparklines."""
