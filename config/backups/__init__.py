"""Backups of the database, and their restoring: `manage.py backup` and `manage.py restore`.

A backup is one file: a manifest, and the database as SQLite's or pg_dump's own format. A restore judges all of it
first, replaces the database in one transaction, and in that transaction holds all rollouts: clusters may be newer.
"""


class BackupRefused(Exception):
    """A backup that cannot be made or restored. `str()` says why, and what to do."""
