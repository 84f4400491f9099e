"""Checks of a whole installation, for `manage.py doctor`: what is wrong, and what to do about it.

Each check runs in a thread with a deadline of its own, so one cluster that hangs delays no other. Nothing is written,
neither to a cluster nor to the database, and no finding contains a secret.
"""
