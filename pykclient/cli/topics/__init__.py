"""``pykclient topics``: list, describe, create and delete topics."""
