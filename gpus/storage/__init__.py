"""From readings to rows: the latest sample, roll-ups of five minutes and hours, idle tracking, retention."""
