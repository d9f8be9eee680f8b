"""Self-contained HTML pages: no script, no network, light and dark, any width."""
