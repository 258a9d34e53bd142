"""What every room uses: errors, output files, tensor files, kernels, processes, devices, progress, memory."""
