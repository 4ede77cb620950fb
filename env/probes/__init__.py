"""The only code of ``env`` that touches the world: every probe returns facts."""
