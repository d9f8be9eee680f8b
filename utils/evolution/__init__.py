"""A search over hyper-parameters: each trial is a whole training in a process of its own."""
