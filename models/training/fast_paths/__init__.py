"""Fused ways to do what plain code does, used where they prove equal to it."""
