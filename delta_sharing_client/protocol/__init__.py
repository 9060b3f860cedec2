"""The Delta Sharing protocol as data: names, schemas, actions, requests. Pure: no I/O, no pyarrow."""
