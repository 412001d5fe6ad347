"""The version of pykclient, the one place that states it."""

__version__ = "0.1.0.dev0"
