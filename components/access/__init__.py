"""Rights that a component needs, the accounts that have them, and how to grant them for a limited time."""
