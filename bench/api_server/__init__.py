"""An API server with pods alone, for measurements of what follows them."""
