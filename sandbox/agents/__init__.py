"""The agent contract: sessions, the supervisor, one-turn episodes."""
