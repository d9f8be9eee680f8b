"""A search over hyper-parameters: each trial is a whole training in a separate process."""
