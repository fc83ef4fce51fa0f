"""What is on the screen, as plain data; nothing here draws."""
