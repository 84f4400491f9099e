"""Helm components: what is known of them, charts, the helm program, and one release in one cluster."""
