"""What a training job's own program tells of its steps: names of trainers' metrics, and the fold over their samples."""
