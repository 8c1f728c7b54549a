"""Keras on TensorFlow and JAX: steps that are looked into are mirrored into torch tensors and judged as torch's are."""
