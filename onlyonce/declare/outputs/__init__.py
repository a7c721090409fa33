"""What a user declares of what is made of records, and where it goes."""
