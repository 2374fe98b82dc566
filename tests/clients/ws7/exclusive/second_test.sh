#!/bin/sh
sleep 1
