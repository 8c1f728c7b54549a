"""Keras on JAX under a watch."""

from __future__ import annotations

from tests.keras.backends import BackendTests, needs


@needs("jax")
class TestJAX(BackendTests):
    """JAX hands the whole state of a training in and out of every step."""

    backend = "jax"
    loop = """
        import jax, jax.numpy as jnp
        x = jax.random.normal(jax.random.key(0), (32, 4))
        weights = jnp.zeros(4)
        step = jax.jit(lambda w: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - x[:, 0]) ** 2))(w))
        for _ in range(20):
            weights = step(weights)
        """
