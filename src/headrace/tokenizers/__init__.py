"""Text to token ids and back: bytes, or a Hugging Face tokenizer.json run by gigatoken. Import the module you need."""
