"""What a GPU tells: metrics, the names that vendors give them, states, XIDs, boards and MIG slices. No database."""
