"""The nouns: units, events, plans, charges, receipts, releases, errors, canonical JSON. Standard library only."""
