"""Passkeys: what WebAuthn asks of a relying party, the challenges, and the stored credentials."""
