def record_failure(config, *, at_us, ranks, detail):
    print("FAILURE", at_us, ranks, detail)
