/*
 * The table of the doctor's checks, and the facts that they judge. The checks are in groups. Each group has
 * one probe, which fills in the group's part of struct doctor_facts. The checks are pure: they read the facts
 * and nothing else.
 */
#ifndef AGENT_DOCTOR_CHECKS_H
#define AGENT_DOCTOR_CHECKS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/doctor/doctor.h"
#include "agent/placement/gpu_health.h"

enum {
    DOCTOR_TEXT_BYTES = 160,
    DOCTOR_PATH_BYTES = 256, /* how many bytes of a path a report shows at most */
    DOCTOR_GPUS = GPU_HEALTH_MAX,
    DOCTOR_LIBRARIES = 4
};

/*
 * In these structs, -1 is a number that is not known, and an empty text one that is not known. A limit of -1
 * means that there is no limit.
 */

struct disk_facts {
    char path[DOCTOR_PATH_BYTES]; /* the nearest directory of the run directory that exists */
    /* errno of the try to make a file in the run directory, and of the try to lock it; 0: it succeeded */
    int make_error, lock_error;
    char type[32];                                /* of the file system: "ext4", "nfs4" */
    char source[DOCTOR_TEXT_BYTES], options[512]; /* of the mount */
    int64_t free_bytes, size_bytes, free_inodes;
    int64_t write_bytes_per_s; /* of synced writes of 1 MiB */
    int64_t sync_us;           /* of a small synced write: the median */
    int write_error;
    char temporary[DOCTOR_PATH_BYTES];
    int temporary_error;
    int64_t temporary_free_bytes;
};

struct memory_facts {
    int64_t total_bytes, available_bytes;
    int64_t group_limit_bytes, group_used_bytes; /* memory of the tightest control group; -1: no limit */
    int64_t shm_size_bytes, shm_free_bytes;      /* of /dev/shm; -1: it is missing */
    bool shm_writable;
    int64_t memlock_bytes; /* -1: unlimited */
    int n_infiniband;      /* devices that need locked memory */
    char transparent_huge_pages[16];
    int64_t huge_bytes, huge_free_bytes; /* reserved for huge pages */
    bool can_memfd;
    /* kills by the OOM killer can be seen, in the control group or in the kernel's log */
    bool sees_oom_kills;
    int overcommit; /* vm.overcommit_memory; -1: not known */
};

struct limit_facts {
    int64_t nofile, nofile_soft; /* -1: unlimited */
    /* how many processes this user may have (-1: no limit), and how many threads run (-1: not known) */
    int64_t nproc, n_threads;
    int64_t pids_max, pids_now; /* of the tightest control group */
    int64_t threads_max;        /* of the kernel */
    int64_t core_bytes, file_bytes, address_bytes;
    char core_pattern[DOCTOR_TEXT_BYTES];
};

struct clock_facts {
    bool known; /* the kernel says whether it is synchronised */
    bool synchronised;
    int64_t error_us;  /* its own estimate of the largest error */
    int64_t now_s;     /* since the epoch */
    int64_t program_s; /* when this program was made */
    char source[32];   /* of the kernel's time: "tsc" */
};

struct kernel_facts {
    char release[64];
    /* kernel features that supervision needs and this kernel lacks; empty: none */
    char lacks[DOCTOR_TEXT_BYTES];
    bool close_range, subreaper;
    int inotify_error;
    char commands_error[DOCTOR_TEXT_BYTES]; /* why the commands over jobs cannot work; empty: they can */
    int n_jobs;
};

struct cpu_facts {
    char model[96];
    int n_online, n_allowed, n_quota; /* quota 0: no limit */
    int n_cores, n_nodes;             /* physical cores and NUMA nodes of the allowed CPUs */
    int n_nodes_far;                  /* NUMA nodes of the allowed CPUs whose memory may not be used */
    bool avx2, avx512, amx;
    /* the variable FSDP_ISA, which names the instruction set for the numerics; "": not set */
    char wanted_isa[16];
    char governor[32], driver[32]; /* of the clock of CPU 0 */
    double load;
    int slurm_cpus; /* SLURM_CPUS_ON_NODE; 0: not set */
};

struct gpu_facts {
    int n_pci;                   /* NVIDIA GPUs on the PCI bus */
    int n_visible;               /* GPUs that workers see */
    char why[DOCTOR_TEXT_BYTES]; /* why there are none, or fewer */
    char driver[64];             /* version of the kernel's driver */
    char nvml_error[DOCTOR_TEXT_BYTES];
    int n_listed; /* GPUs of NVML */
    int n_sampled;
    struct gpu_sample samples[DOCTOR_GPUS];
    /* XIDs (error codes of NVIDIA's driver) in the kernel's log since the machine started */
    int last_xid, n_xids;
    char xid_pci[GPU_HEALTH_PCI_BYTES];
    bool log_readable;
};

struct library_fact {
    char name[DOCTOR_PATH_BYTES];
    char error[DOCTOR_TEXT_BYTES]; /* why the library cannot be opened; empty: it can be opened */
    int version;                   /* the library's own number; 0: it has none */
};

/* Their places in library_facts. */
enum { LIBRARY_CUDA, LIBRARY_PLUGIN, LIBRARY_NCCL, LIBRARY_CUDNN };

struct library_facts {
    bool wanted; /* the machine has an NVIDIA GPU; without one, the library is not needed */
    struct library_fact of[DOCTOR_LIBRARIES];
    int cublaslt_version; /* which the plug-in brings; 0: not known */
    char python[64];      /* its version */
    char torch[64];       /* PyTorch's version, from its metadata */
    char torch_cuda[16];  /* the CUDA version for which that PyTorch was built; "none" */
    bool python_late;     /* python3 gave no answer */
    bool needs_tls;       /* several nodes meet */
    char tls_error[DOCTOR_TEXT_BYTES];
};

struct install_facts {
    char version[32];                                          /* of this program */
    char agent[DOCTOR_TEXT_BYTES], trainer[DOCTOR_TEXT_BYTES]; /* what each says; "" */
    char library[DOCTOR_PATH_BYTES];                           /* the file to which libfsdp.so.N leads; "" */
    char on_path[DOCTOR_PATH_BYTES];                           /* the fsdprun that a shell finds; "" */
    bool on_path_is_this;
    char slurm_job[32];
    bool slurm_step;       /* in a step of srun */
    int slurm_nodes;       /* of the Slurm job */
    bool killed_at_logout; /* this process is in a session whose processes logind kills at logout */
};

struct network_facts {
    char host[DOCTOR_NODE_BYTES];
    char host_error[DOCTOR_TEXT_BYTES]; /* why its name does not resolve; "" */
    char host_address[64];
    bool host_is_loopback; /* all of its addresses are */
    int n_nodes;
    char endpoint[DOCTOR_TEXT_BYTES], endpoint_error[DOCTOR_TEXT_BYTES];
    /* port_error: errno of listening at the port; 0: the port is free, or the endpoint is another host */
    int port, port_error;
    bool endpoint_is_here;
    char interface[32]; /* the fastest one that is up; "" */
    int interface_mbit; /* -1: not known */
    int interface_mtu;
    int64_t interface_errors, interface_packets;
    int n_infiniband, n_infiniband_active;
    char infiniband_down[64]; /* a port that is not active */
};

struct doctor_facts {
    struct disk_facts disk;
    struct memory_facts memory;
    struct limit_facts limits;
    struct clock_facts clock;
    struct kernel_facts kernel;
    struct cpu_facts cpus;
    struct gpu_facts gpus;
    struct library_facts libraries;
    struct install_facts install;
    struct network_facts network;
};

struct doctor_check {
    const char *name; /* NULL: the end of the list */
    /* Pure. Write what was found into `value`. */
    enum doctor_state (*judge)(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES]);
    const char *advice;
};

struct doctor_group {
    const char *name;
    void (*probe)(struct doctor_facts *facts, const struct doctor_host *host);
    size_t offset, size; /* of its part of struct doctor_facts */
    int64_t within_ms;   /* it has this long */
    const struct doctor_check *checks;
    const char *advice; /* where the probe gives no answer */
};

extern const struct doctor_group doctor_groups[];
extern const size_t doctor_n_groups;

extern const struct doctor_check disk_checks[], memory_checks[], limit_checks[], clock_checks[],
    kernel_checks[], cpu_checks[], gpu_checks[], library_checks[], install_checks[], network_checks[];

void disk_probe(struct doctor_facts *facts, const struct doctor_host *host);
void memory_probe(struct doctor_facts *facts, const struct doctor_host *host);
void limit_probe(struct doctor_facts *facts, const struct doctor_host *host);
void clock_probe(struct doctor_facts *facts, const struct doctor_host *host);
void kernel_probe(struct doctor_facts *facts, const struct doctor_host *host);
void cpu_probe(struct doctor_facts *facts, const struct doctor_host *host);
void gpu_probe(struct doctor_facts *facts, const struct doctor_host *host);
void library_probe(struct doctor_facts *facts, const struct doctor_host *host);
void install_probe(struct doctor_facts *facts, const struct doctor_host *host);
void network_probe(struct doctor_facts *facts, const struct doctor_host *host);

/** Count the NVIDIA GPUs on the PCI bus. */
int gpu_count_pci(const struct doctor_host *host);
/**
 * Is this record of the kernel's log a report of an XID by NVIDIA's driver? If so, write the XID's number and
 * the GPU's address. Pure.
 */
bool gpu_read_xid(const char *record, int *xid, char pci[GPU_HEALTH_PCI_BYTES]);

/* Helpers of the judgements (words.c). */

/** Write a formatted value, and return `state`, so that a judgement can end with this call. */
enum doctor_state doctor_say(enum doctor_state state, char value[DOCTOR_VALUE_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Write a size for a person: "1.5 GiB". Returns `out`. */
const char *doctor_size(char out[32], int64_t bytes);
/**
 * Judge a number: returns fail if it is below `fail`, warn if it is below `warn`, else ok. A negative number
 * means no limit, and is ok.
 */
enum doctor_state doctor_least(int64_t number, int64_t warn, int64_t fail);

/** Read a number from a file below the root. -1: the file says "max", or cannot be read. */
int64_t doctor_number(const struct doctor_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Read a line from a file below the root, without its end. Returns false, with "", if it cannot be read. */
bool doctor_line(const struct doctor_host *host, char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** The variable's value; NULL: it is not set, or empty. */
const char *doctor_env(const struct doctor_host *host, const char *name);

#endif
