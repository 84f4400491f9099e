"""What each team's GPUs cost: prices with their history, rules that map pods to teams, statements and their files."""
