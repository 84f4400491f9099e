"""People, their roles, sessions, links and API tokens, and the permissions that follow from them."""
