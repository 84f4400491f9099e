"""Pages and REST of prices, teams and statements."""
