"""Open batches, partition queues and memory: the half of sending that application threads run."""
