"""Following a shared table: its changes, batch by batch, with a checkpoint of how far they were taken."""
