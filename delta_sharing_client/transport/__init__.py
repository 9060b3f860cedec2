"""The only sockets of the package: transports, retries, deadlines, URL rules."""
