"""What akeso puts into the trainers that people use; each is imported by its own name and needs its package."""
