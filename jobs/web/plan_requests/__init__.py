"""Pages and REST of plans that a worker makes: what was asked for, how far it is, and what came of it."""
