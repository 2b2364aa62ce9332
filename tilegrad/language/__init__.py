"""The user's door to the tile language: still empty."""
