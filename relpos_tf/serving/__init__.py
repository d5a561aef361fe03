"""A server of translations: requests, batches, a page to look at."""
