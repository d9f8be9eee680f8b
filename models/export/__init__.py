"""Export a trained model to ONNX and formats converted from it, and verify each file."""
