#include <unistd.h>

int main() { return sleep(1); }
