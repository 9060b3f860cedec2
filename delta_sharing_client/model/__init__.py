"""Tables, schemas, actions and profiles as data. Pure: no input or output, no columns."""
