"""The append-only record of what was done, sealed; and the marks of rows that carry power."""
