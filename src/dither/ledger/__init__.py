"""The privacy ledger: one append-only budget book that cannot overspend, be edited unseen, or forget."""
