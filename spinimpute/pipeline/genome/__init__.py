"""A genome at once: which panel and which target file each chromosome has, and where its records go."""
