"""Policy objects (namespaces, quotas, queues): prepared, carried out, taken back, judged."""
