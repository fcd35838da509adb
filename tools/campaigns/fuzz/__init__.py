"""Random graphs through pipelines, compared on ONNX Runtime; random trainable ones, compared with torch."""
