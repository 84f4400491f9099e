"""Which rights carrying a component out takes, which account has them, and how one is given them for a while."""
