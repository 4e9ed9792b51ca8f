"""How fast Steptax itself is, printed by a command each."""
