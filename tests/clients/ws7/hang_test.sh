#!/bin/sh
echo "waiting for what never comes"
sleep 600
