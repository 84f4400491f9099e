"""What other rooms' pages take from this one."""
