"""Reports for pages and REST: tallies, the heatmap, bands of states, health, data quality, sparklines."""
