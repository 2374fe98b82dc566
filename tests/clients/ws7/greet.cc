#include "greet.h"

std::string greet(const std::string& whom) { return "hello, " + whom; }
