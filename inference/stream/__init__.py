"""Streams: fits to batches of samples, which need not be in memory together."""

from .evaluation import stream_bound
from .run import stream

__all__ = ["stream", "stream_bound"]
