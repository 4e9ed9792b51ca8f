"""What a claim against a provider rests on."""
