"""What is measured with the engine and is no part of serving: recall, accuracy, shards, tables, a load of its own."""
