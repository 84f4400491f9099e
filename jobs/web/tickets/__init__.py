"""Change records over pages, REST and the address that ticket systems send to."""
