"""The demo: a real data-parallel training job on this machine, with one worker made slow."""
