"""What Setpoint knows of each component: entries as YAML data, their order, layers of values, and what is wrong."""
