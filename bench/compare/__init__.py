"""What `bench/peers` is made of: sessions, measurements, host facts, targets and the report."""
