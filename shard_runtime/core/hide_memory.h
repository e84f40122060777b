/*
 * For a process that holds secrets.
 */
#ifndef CORE_HIDE_MEMORY_H
#define CORE_HIDE_MEMORY_H

/**
 * From now on this process, and those that it forks, leave no core dump. Other processes of the same user can
 * neither read their memory nor attach a debugger (PR_SET_DUMPABLE). This does not apply to programs that
 * they execute. Call it when only one thread exists.
 */
void core_hide_memory(void);

#endif
