"""The benchmarks of this project. As a package, it is what `benchmarks` imports: not the script."""
