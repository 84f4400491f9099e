"""Programs of checks that Setpoint brings itself: each is one file, given to `python3 -c` as text."""
