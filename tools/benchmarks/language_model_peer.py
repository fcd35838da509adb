"""Runs where stock onnxruntime is, since the training build lacks this: weights of 4 bits, its own way.

python language_model_peer.py SOURCE TARGET BLOCK
"""

from __future__ import annotations

import sys

import onnx
from onnxruntime.quantization.matmul_4bits_quantizer import MatMul4BitsQuantizer

if __name__ == "__main__":
    source, target, block = sys.argv[1:]
    quantizer = MatMul4BitsQuantizer(onnx.load(source), block_size=int(block), is_symmetric=False)
    quantizer.process()
    quantizer.model.save_model_to_file(target)
