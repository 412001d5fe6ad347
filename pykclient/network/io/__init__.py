"""All sockets, name look-ups and selectors, behind the port."""
