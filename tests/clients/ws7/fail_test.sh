#!/bin/sh
echo "the reason it fails: 2 is not 3"
exit 1
