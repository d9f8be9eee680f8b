"""The processes of a job: starting, joining, watching, suspending and ending them."""
