"""Components and policy objects held to what is assigned: which there are, and when each is looked at."""
