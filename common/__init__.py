"""What every room may use: clock, errors, hooks, request types. No models, imports no app."""
