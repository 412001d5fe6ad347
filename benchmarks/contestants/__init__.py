"""The clients that are measured, a module each, and the job that all of them do."""
