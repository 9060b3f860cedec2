"""From the actions of an answer to tasks: what to fetch, pruned, without any credential."""
