"""Bytes to messages and back; knows no socket, no time and no thread.

`primitives` has the wire types, `message` the base of all messages and the request and response
headers, `framing` cuts a byte stream into frames, `api_keys` and `messages` are generated.
"""
