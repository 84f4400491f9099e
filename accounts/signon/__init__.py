"""Single sign-on: the code flow with a provider, the verification of its token, and the account that it leads to."""
