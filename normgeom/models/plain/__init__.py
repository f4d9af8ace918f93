"""A pass over a sequence and its gradient by plain operations, on any device: no graph, one loop each way."""
