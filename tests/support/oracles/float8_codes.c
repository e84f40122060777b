/*
 * Reads float32 numbers on standard input and writes their float8 e4m3 codes, a byte each. With -d the
 * numbers of all 256 codes follow. Other software's are compared with these.
 */
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/e4m3.h"

int main(int argc, char **argv)
{
    float value;

    while (fread(&value, sizeof value, 1, stdin) == 1)
        putchar(e4m3_of_f32(value));
    for (int code = 0; argc > 1 && strcmp(argv[1], "-d") == 0 && code < 256; code++) {
        value = e4m3_to_f32((uint8_t)code);
        fwrite(&value, sizeof value, 1, stdout);
    }
    return ferror(stdin) != 0 || fflush(stdout) != 0;
}
