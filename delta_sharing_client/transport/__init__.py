"""HTTP transports to sharing servers, token endpoints and stores: connections, retries, deadlines, URL rules."""
