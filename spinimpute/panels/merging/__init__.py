"""Several panels of one chromosome made into one."""
