"""Audit records sent on as they are sealed: syslog, OpenTelemetry logs, a signed webhook."""
