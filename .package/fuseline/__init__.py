"""fuseline: a compiler-style graph transformation engine for ONNX."""
__version__ = "0.1.0"
