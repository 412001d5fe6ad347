"""Record batches: encoding, compression and checksums, independent of messages and sockets."""
