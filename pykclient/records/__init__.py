"""Record batches: their bytes, their compression, their checksum. Knows no message, no socket."""
