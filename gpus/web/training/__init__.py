"""Page and REST of the steps of training jobs."""
