"""A real prefill/decode pair on this machine's CPU, a proxy before it, bounded load, and faults on demand."""
