"""What clients measure of themselves: the sensors, and the table of all names."""
