/*
 * What the kernel shows of one process that makes no progress: its state, where it waits, its system call,
 * its kernel stack and its threads.
 *
 * Files that take the memory lock of the process (maps, cmdline, environ) are never read, because a stuck
 * process may hold that lock for ever. What is read can still block for a while (a process in execve), so the
 * caller uses a thread of its own.
 *
 * Pure but for the files below `proc`, which tests replace. Thread: any.
 */
#ifndef AGENT_PROCESS_LOOK_H
#define AGENT_PROCESS_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PROCESS_LOOK_NAME_BYTES = 64,
    PROCESS_LOOK_FILE_BYTES = 128,
    PROCESS_LOOK_FRAMES = 12,
    PROCESS_LOOK_KINDS = 6,   /* how many kinds of other threads are told apart */
    PROCESS_LOOK_HELD = 8,    /* how many held processes one toll remembers */
    PROCESS_LOOK_THREADS = 64 /* how many threads are examined; the others are only counted */
};

/* Threads that are in the same state and wait in the same function. */
struct process_look_threads {
    int count;
    char state;
    char wchan[PROCESS_LOOK_NAME_BYTES];
};

/*
 * In this struct an empty text, or a 0 where that is stated, means not known. The members from state to
 * frames are about the main thread.
 */
struct process_look {
    char state;                          /* 'S', 'D', 'T', 'R', ...; '?': unknown, or the process is gone */
    char wchan[PROCESS_LOOK_NAME_BYTES]; /* the kernel function in which it waits */
    char syscall[24];                    /* "futex", "#435", "running" (in none) */
    char file[PROCESS_LOOK_FILE_BYTES];  /* what the descriptor in that system call is open on */
    char frames[PROCESS_LOOK_FRAMES][PROCESS_LOOK_NAME_BYTES]; /* kernel functions, innermost first */
    int n_frames;
    bool frames_refused; /* we may not read kernel stacks: that needs CAP_SYS_ADMIN */
    int n_threads;       /* all of them; 0: unknown */
    struct process_look_threads others[PROCESS_LOOK_KINDS]; /* all threads but the main one, by kind */
    int n_others;
};

/** Fill in `look`. `proc` is the directory of the process's /proc, "/proc" except in tests. */
void process_look(struct process_look *look, const char *proc, pid_t pid);

/**
 * Returns the process that traces `pid` (a debugger); 0: none. Never blocks: `status` needs no lock that a
 * stuck process can hold (fs/proc/array.c of Linux), so the answer does not depend on process_look().
 */
pid_t process_tracer(const char *proc, pid_t pid);

/** Returns whether the process handles that signal. Never blocks, as process_tracer(). */
bool process_catches(const char *proc, pid_t pid, int signal);

/** Is a process in this state held: stopped, or asleep in the kernel? */
bool process_state_is_held(char state);

/* A process that is held: its main thread is stopped ('T', 't'), or asleep in the kernel ('D'). */
struct process_held {
    pid_t pid;
    char state;
    uint64_t run_ns; /* how long its main thread has run; 0: not known */
};

/* What the kernel has counted for one or more processes that may have been kept from running. */
struct process_toll {
    bool blocked; /* one of them is in state D */
    int n_held;
    struct process_held held[PROCESS_LOOK_HELD];
    int n_threads;
    struct process_toll_thread {
        pid_t thread;
        uint64_t delay_ns; /* how long the thread was ready to run but had no CPU */
    } threads[PROCESS_LOOK_THREADS];
    uint64_t run_ns;  /* how long their main threads ran; 0: not known */
    uint64_t used_ns; /* how long all of their threads ran, or were ready to run; 0: not known */
};

/**
 * Adds what can be read about the process to `toll`, which is all zero at first. Never blocks for long.
 * `proc` is as in process_look().
 */
void process_toll_add(struct process_toll *toll, const char *proc, pid_t pid);
/**
 * Returns how long the processes were kept from running between two tolls of them: the delay of the thread
 * that was delayed the most. A sum would grow with the number of threads, and exceed the time that passed.
 */
uint64_t process_toll_delay(const struct process_toll *before, const struct process_toll *now);

/**
 * Returns the process that two tolls, some time apart, have found held in the same way, and that has hardly
 * run in between. A stopped process is preferred to one in state D. NULL: there is none. A single toll would
 * not do, because it may meet a read that lasts for a millisecond.
 */
const struct process_held *process_toll_held(const struct process_toll *before,
                                             const struct process_toll *now);

/* What a process, and its children that were waited for, have used since they began. */
struct process_usage {
    uint64_t cpu_ns;
    uint64_t work;          /* page faults, and calls of the process that read or write */
    uint64_t written_bytes; /* by calls that write to files, pipes and terminals */
};

/**
 * Adds what can be read about the process to `usage`; nothing if it is in state D. `proc` is as in
 * process_look().
 */
void process_usage_add(struct process_usage *usage, const char *proc, pid_t pid);

#endif
