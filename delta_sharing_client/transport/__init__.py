"""HTTP to the sharing server, token endpoints and stores: transports, retries, deadlines, URL rules."""
