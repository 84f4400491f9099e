"""What Setpoint costs, measured on the real control plane: `python -m bench --help`."""
