"""Flags and hyper-parameters as frozen settings, validated when built."""
