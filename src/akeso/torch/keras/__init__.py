"""Keras on its torch backend, told in torch's own terms. Nothing here imports Keras: it is there, or it is not."""
