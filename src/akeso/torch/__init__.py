"""Everything of akeso that knows PyTorch: taps, probes, task inference, surgery."""
