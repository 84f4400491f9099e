"""Page and REST of what a training job's program tells of its steps."""
