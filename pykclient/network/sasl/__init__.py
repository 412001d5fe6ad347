"""SASL: the mechanisms by which a client authenticates, and the tokens that some of them need."""
