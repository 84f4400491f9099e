"""Alerts since when, and the mails and webhooks that tell of them."""
