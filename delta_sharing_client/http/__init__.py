"""The only sockets of the package: two transports, their options, their retries."""
