"""Plans: a revision and a pool become a frozen difference that is approved by its digest."""
