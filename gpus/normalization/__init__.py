"""From the series of an exporter to the reading of a GPU: whose it is, once, scaled and plausible. Pure functions."""
