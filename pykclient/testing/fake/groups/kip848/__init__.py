"""Groups of KIP-848, whose partitions the broker assigns."""
