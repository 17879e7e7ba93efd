"""Speed and memory of gnnsafe beside the plain way, measured in one run: `make benchmark`."""
