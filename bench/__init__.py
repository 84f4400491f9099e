"""Benchmarks of Setpoint's costs, measured on the real control plane: `python -m bench --help`."""
