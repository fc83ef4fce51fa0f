"""The bundled reference deployment: prefill and decode engines, a router and a KV store, started and broken on purpose."""
