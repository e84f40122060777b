/* The name of this host's processor. */
#ifndef DEVICE_CPU_NAME_H
#define DEVICE_CPU_NAME_H

#include <stddef.h>

/**
 * Writes the processor's model, its family, model number and stepping. Two hosts with the same name compute
 * the same bits, if they use the same libraries and threads. On other processors than x86: the architecture.
 */
void cpu_name(char *buffer, size_t size);

#endif
