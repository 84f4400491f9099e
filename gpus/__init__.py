"""What the GPUs do: telemetry sources, normalization, roll-ups, pages.

Nothing outside this room sees an exporter's own name of a metric.
"""
