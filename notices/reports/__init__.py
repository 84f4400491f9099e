"""What pages and REST read of alerts and deliveries, and the panels that other pages show."""
