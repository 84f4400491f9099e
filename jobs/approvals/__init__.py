"""Who may approve a plan, how many must, and what may be done with it now."""
