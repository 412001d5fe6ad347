"""The parts of the flights demo (examples/flights_demo.py), one noun each."""
