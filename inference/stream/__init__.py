"""Streams: fits to batches of samples that need not be in memory together; `run` is `cavi.stream`."""

from .run import stream, stream_bound

__all__ = ["stream", "stream_bound"]
