"""The demo: simulated clusters, a history made by the real engine, people to log in as; on this machine only.

`environment` separates it from any real installation, `fleet` serves the clusters, `journey` moves the clock while the
history is made, `history` makes it, `people` are who can log in, and `tls` is each cluster's certificate authority.
`charts` are stand-ins for components, which `packing` makes archives of and `stock` puts where uploaded ones are.
`hands` is a person's way to the clusters beside Setpoint: what `manage.py demo_break` breaks with.
`manage.py demo` puts them together.
"""
