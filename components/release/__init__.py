"""One release: prepared for a plan, carried out or put back, looked at, compared with what was approved."""
