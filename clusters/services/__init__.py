"""Actions on clusters, pools and nodes."""
