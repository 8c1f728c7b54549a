"""Keras on TensorFlow under a watch."""

from __future__ import annotations

from tests.keras.backends import BackendTests, needs


@needs("tensorflow")
class TestTensorFlow(BackendTests):
    """TensorFlow's own loop is compiled as a whole, its data among it."""

    backend = "tensorflow"
    loop = """
        import keras, tensorflow as tf
        model = keras.Sequential([keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        x = tf.random.normal((32, 4))
        for _ in range(20):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - x[:, :1]) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
        """
