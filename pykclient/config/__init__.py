"""Settings: what each is, what they are checked for, and what is not supported."""
