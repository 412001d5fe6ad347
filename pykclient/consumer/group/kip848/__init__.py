"""The consumer group protocol of KIP-848, where the coordinator assigns."""
