"""What the GPUs do: telemetry sources, normalisation, roll-ups, pages.

Nothing outside this room sees an exporter's own name of a metric.
"""
