"""Setpoint's knowledge of each component: entries as YAML data, their order, layers of values, and their problems."""
