"""The room that changes the world: processes of our own."""
