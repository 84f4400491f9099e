"""People and their roles: invitations, the first administrator, and what takes a second administrator's consent."""
