"""Import of models that tensor2tensor trained."""
