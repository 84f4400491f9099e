"""Maintenance windows and calendar freezes: when steps of a target may start, by rules that recur in local time."""
