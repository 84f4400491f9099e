"""What pages, search and alerts read."""
