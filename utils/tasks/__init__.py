"""The framework-independent parts of tasks; `models/heads` has the rest."""
