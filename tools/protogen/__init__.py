"""Writes `pykclient.protocol`'s messages, API table and broker errors from Kafka's own schemas.

`python -m tools.protogen` writes, `python -m tools.protogen --check` fails when what is on disk
differs. Only facts are taken from Kafka (names, types, versions, tags, defaults, codes), none of
its sentences.
"""
