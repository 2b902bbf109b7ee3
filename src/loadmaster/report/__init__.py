"""To be looked at: results as JSON documents for scripts, and as tables for people."""
