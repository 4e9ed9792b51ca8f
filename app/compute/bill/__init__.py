"""Every paid GPU-second in one bucket, and dollars for it, exact to the cent."""
