"""What `docker`, `k8s` and `ci` share: how generated files are written, and how the programs are found that take them."""
