"""What the sender thread uses: Produce requests, sequences, the thread itself."""
