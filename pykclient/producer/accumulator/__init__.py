"""What the application's threads use: open batches, queues of partitions, memory."""
