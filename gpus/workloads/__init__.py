"""Jobs that hold GPUs, over their life: what they held, how busy it was, what it cost and what happened to it."""
