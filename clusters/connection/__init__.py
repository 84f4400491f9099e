"""Stored credentials turned into clients: encryption, clients by cluster, renewal, expiry, connection tests."""
