"""A content-addressed artifact store: every file kept once, under the BLAKE3 of its bytes."""
