"""The measured side: the vLLM server, the clients that load it, the merges that contend with it."""
