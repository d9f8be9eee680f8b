"""What a person sees while a command runs: log lines, progress, the words of a count."""
