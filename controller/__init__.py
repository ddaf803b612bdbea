"""The OpenFlow controller: pure functions decide forwarding and queues, its own process installs them."""
