"""GPU telemetry: sources, normalization, roll-ups, pages.

Nothing outside this app sees an exporter's own name of a metric.
"""
