"""What people do to clusters, pools and nodes."""
