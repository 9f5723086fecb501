"""Sources -> tokenizer -> shard writers -> manifest."""
