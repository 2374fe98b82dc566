#!/bin/sh
links=$(grep -c '^link' "$TEST_SRCDIR/$TEST_WORKSPACE/link9.txt")
echo "links: $links"
[ "$links" = 10 ]
