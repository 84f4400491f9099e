"""Telemetry sources: exporters and Prometheus behind one port, discovered or configured."""
