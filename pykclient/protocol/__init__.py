"""Conversion of bytes to messages and back, without sockets, time or threads.

`primitives` has the wire types, `message` the base of all messages and the headers of requests and
responses, and `framing` cuts a byte stream into frames. `api_keys` and `messages` are generated.
"""
