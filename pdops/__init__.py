"""Operate prefill/decode-disaggregated LLM inference clusters."""

__version__ = "0.1.0"
