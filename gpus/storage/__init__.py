"""Storage of readings: the latest sample, roll-ups of five minutes and hours, idle tracking, retention."""
