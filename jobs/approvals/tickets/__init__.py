"""Change records: the reference of a plan in a ticket system, and what the ticket system holds and releases."""
