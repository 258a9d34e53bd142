"""Labels that are known per person, such as HLA types: `panel labels` adds them to a panel."""
