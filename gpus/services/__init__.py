"""The polling of each cluster, and the administration of its telemetry source."""
