"""Steps of training jobs: names of trainers' metrics, and the fold over their samples."""
