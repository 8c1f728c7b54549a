"""Keras on its torch backend, told in torch's own terms. Nothing here brings Keras in: it is there, or it is not."""
