"""The container images, built and started together."""
