"""Speed, measured side by side in one run: these figures depend on the machine and its load, ratios less."""
