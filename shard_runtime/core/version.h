/*
 * Version, commit and compiler of this build.
 */
#ifndef CORE_VERSION_H
#define CORE_VERSION_H

const char *version_number(void);   /* "0.1.0" */
const char *version_commit(void);   /* short hash, or "unknown" outside a checkout */
const char *version_compiler(void); /* "gcc 12.2.0" */

#endif
