"""What each node and component is expected to have, whether it has it, and since when not."""
