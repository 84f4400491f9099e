"""Active checks: a program that runs on an idle node, and what its output says of the hardware there."""
