"""Jobs that hold GPUs, over their life: GPU-hours, activity, cost, and events on their nodes."""
