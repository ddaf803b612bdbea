"""From a scenario to a recorded run: where it runs, the network, the flows, the record."""
