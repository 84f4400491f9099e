"""SCIM 2.0 (RFC 7643, RFC 7644): a provider's directory makes, changes and ends its people and groups."""
