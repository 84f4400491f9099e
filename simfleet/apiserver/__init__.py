"""The simulated API server: objects and their versions, admission, field managers, watches, and its HTTP door."""
