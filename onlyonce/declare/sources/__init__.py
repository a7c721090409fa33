"""What a user declares of where records come from."""
