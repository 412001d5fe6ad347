"""SASL mechanisms that authenticate a client, and the tokens that some of them need."""
