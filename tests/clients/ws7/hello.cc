#include <iostream>

#include "greet.h"

int main() { std::cout << greet("worker") << "\n"; }
