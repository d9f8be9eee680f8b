"""The built-in dataset: shapes of five classes over textured clutter."""
