#include "greet.h"

int main() { return greet("x") == "hello, x" ? 0 : 1; }
