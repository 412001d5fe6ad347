"""The version of pykclient, stated only here."""

__version__ = "0.1.0.dev0"
