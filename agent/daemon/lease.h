/*
 * What a daemon and the fsdprun of a job say to each other about GPUs, over the socket whose number follows
 * CONTROL_START_WORD. Each message is one datagram (SOCK_SEQPACKET).
 *
 *   from      message               meaning
 *   fsdprun   struct lease_need     how many GPUs the job needs; at most once, before its workers start
 *   daemon    struct lease_answer   it waits, and for what; or it holds these. None to a need of none
 *   fsdprun   one byte              enum lease_word
 *
 * The guard and the agent of a job keep the socket open until they end, and no worker has it. So its end
 * means that no process of the job is left, and the job's GPUs are free.
 */
#ifndef AGENT_DAEMON_LEASE_H
#define AGENT_DAEMON_LEASE_H

#include "agent/daemon/queue.h"

enum lease_word {
    LEASE_STARTED, /* the workers run */
    LEASE_QUEUED   /* the job waits in the queue, `fsdprun ps` can find it, and it has told its user */
};

struct lease_need {
    uint32_t n_gpus;
    struct queue_gpus usable;
    char name[QUEUE_NAME_BYTES];
};

struct lease_answer {
    uint32_t granted; /* 1: the job holds `held`; 0: it waits, and `words` say for what */
    struct queue_gpus held;
    char words[QUEUE_WORDS_BYTES]; /* why it waits (queue_words()); sent again when that changes */
};

#endif
