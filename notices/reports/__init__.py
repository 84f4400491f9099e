"""Reports of alerts and deliveries for pages and REST, and the panels that other pages show."""
