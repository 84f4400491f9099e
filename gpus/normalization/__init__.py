"""Normalization: an exporter's series to readings of GPUs, attributed, deduplicated, scaled and plausible. Pure."""
