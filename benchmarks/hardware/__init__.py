"""What the hardware gives: matrix multiply, memory, links, launches, model blocks, collectives."""
