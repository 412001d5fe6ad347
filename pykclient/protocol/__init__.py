"""Bytes to messages and back, without socket, time and thread.

`primitives` has the wire types, `message` the base of all messages and the request and response
headers, `framing` cuts a byte stream into frames, `api_keys` and `messages` are generated.
"""
