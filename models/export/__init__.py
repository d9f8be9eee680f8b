"""A trained model -> an ONNX graph and the files that converters make of it, each one verified."""
