"""People, their roles, sessions, links and API tokens; who may do what, and where."""
