"""Where readings come from: exporters and Prometheus behind one port, found by themselves or named."""
