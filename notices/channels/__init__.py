"""Channels of notices: webhooks and mail, routed, delivered, signed, and the audit record's heads shipped."""
