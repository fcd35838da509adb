"""Golden files: what a pass makes of a model, as ONNX text, in the repository and in a user's own folder."""
