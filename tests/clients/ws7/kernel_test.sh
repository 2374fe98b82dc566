#!/bin/sh
# The folder of a worker is named after its GPU.
echo "kernel_test ran in $PWD"
