"""Parts of this room that other rooms' pages use."""
