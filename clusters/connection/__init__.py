"""From a stored credential to a client: encryption, clients by cluster, renewal, expiry, the test of a connection."""
