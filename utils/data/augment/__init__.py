"""Random changes to a training sample, drawn first and then applied."""
