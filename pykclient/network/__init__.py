"""What all clients share between their own logic and the sockets; knows no producer, no consumer."""
