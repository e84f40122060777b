/*
 * The registry: which runs of this user are alive on this machine. Each run has an entry, a small file, and a
 * unix socket at which it answers (agent/desk/desk.h). `fsdprun ps` and the other commands over jobs find the
 * runs here; nothing watches them.
 *
 * The folder is $XDG_RUNTIME_DIR/fsdprun, if that variable names a directory of this user; else fsdprun-UID
 * below the temporary directory. A reader looks into both, because a run and its reader may have other
 * environments. The folder has mode 0700. One that is a symbolic link, that another user owns, or that others
 * may enter is refused. It is removed with its last entry.
 *
 * A reader that an fsdp-agent told the environment of a job also finds that job's folder. It may be another
 * user's if the reader is root. Such a reader changes nothing in it, and believes nothing that it says.
 *
 * An entry has the name ID.RANDOM.json, and its socket ID.RANDOM.sock. The run holds a lock of fcntl(2) on
 * its entry as long as it lives. The kernel releases it when the process ends, however that happens, and no
 * child inherits it. So an entry without a lock belongs to no run: a reader ignores it, and removes its
 * socket. A process id that is used again changes nothing.
 *
 *   1. The run creates .ID.RANDOM.new, locks it, writes it, and binds the socket.
 *   2. It renames that file to the entry's name. So an entry is whole, locked, and has a socket.
 *   3. At its end it removes both.
 *   4. An entry that is left although its run is gone was of a run that was killed. A reader renames it to
 *      ID.RANDOM.lost, so that `fsdprun ps` can say where the run directory is, for REGISTRY_LOST_S.
 */
#ifndef AGENT_DESK_REGISTRY_H
#define AGENT_DESK_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <fsdp/status.h>

enum {
    REGISTRY_ID_BYTES = 32,
    REGISTRY_NAME_BYTES = 256,
    REGISTRY_PATH_BYTES = 4096,
    REGISTRY_FILE_BYTES = 64,
    REGISTRY_ENTRY_BYTES = 65536, /* a larger entry is ignored */
    REGISTRY_MOST = 4096,         /* a reader reads at most so many entries of a folder */
    /* the list holds at most so many killed runs, of both folders; all further ones are forgotten */
    REGISTRY_LOST = 64,
    REGISTRY_LOST_S = 3600
};

/* What an entry says. */
struct registry_job {
    char id[REGISTRY_ID_BYTES]; /* the process id of its fsdprun, as text */
    char name[REGISTRY_NAME_BYTES];
    char run_dir[REGISTRY_PATH_BYTES]; /* empty: it has none */
    pid_t pid;                         /* the process id of its fsdprun: the guard, which the user sees */
    double started_s;                  /* since the epoch */
    /* set by a reader: the number of the folder in its list, and the name of the entry's socket */
    size_t folder;
    char socket[REGISTRY_FILE_BYTES];
};

/**
 * Write the path of the folder that a run of this process enters into `path` (REGISTRY_PATH_BYTES). Makes it
 * if it is not there. Errors as registry_enter().
 */
enum fsdp_status registry_folder(char *path, struct fsdp_err *err);

/* The entry of this process. */
struct registry_entry;

/**
 * Put a run into the registry. May wait for a file system.
 *   listen_fd  the socket of the entry, which listens and does not block; the caller's
 *   FSDP_ERR_CONFIG  the folder is refused (see above)
 *   FSDP_ERR_IO      the system refuses something
 *   FSDP_ERR_UNSUPPORTED  there is no /proc
 * After an error *out is NULL, *listen_fd is -1, and nothing is left. Thread: any.
 */
enum fsdp_status registry_enter(struct registry_entry **out, const struct registry_job *job, int *listen_fd,
                                struct fsdp_err *err);

/**
 * Remove the entry and its socket, and free. Also for a child of the process that made it: the lock stays
 * that process's, and whichever is second finds nothing to remove. NULL: no effect.
 */
void registry_leave(struct registry_entry *entry);

/* A folder that a reader has opened. */
struct registry_folder {
    int fd;
    uid_t owner;
};

/*
 * The runs that were alive when the registry was read, and those that were killed lately. {0} is an empty
 * list.
 */
struct registry_list {
    struct registry_job *jobs; /* (n), oldest first */
    size_t n, capacity;
    struct registry_job *lost; /* (n_lost), oldest first; their run directories have files */
    size_t n_lost;
    struct registry_folder *folders; /* (n_folders) */
    size_t n_folders;
};

/**
 * Read the registry, and remove what runs have left that are gone. registry_list_fini() releases the list,
 * also after an error.
 *   FSDP_ERR_CONFIG  a folder is refused; the list has what is in the other one
 *   FSDP_ERR_IO      the system refuses something
 *   FSDP_ERR_NOMEM   no memory
 */
enum fsdp_status registry_read(struct registry_list *list, struct fsdp_err *err);

/**
 * Add one job of an agent to a list, if it has an entry and the list does not have it yet. Removes nothing.
 *   owner        the user of the agent and of its jobs
 *   pid          the process id of the job's guard
 *   runtime_dir  XDG_RUNTIME_DIR of the job's environment, and `temporary` its TMPDIR; "": not set
 * Errors as registry_read(). registry_list_fini() releases the list, also after an error.
 */
enum fsdp_status registry_add(struct registry_list *list, uid_t owner, pid_t pid, const char *runtime_dir,
                              const char *temporary, struct fsdp_err *err);
void registry_list_fini(struct registry_list *list);

/**
 * Connect to a run of the list. Returns a socket that does not block, or -1 with errno. EPERM: the process at
 * its other end is not of the owner of its folder. EAGAIN: too many connections wait there now.
 */
int registry_connect(const struct registry_list *list, const struct registry_job *job);

/**
 * Watch the folders by `fd`, a descriptor of inotify(7) that does not block: it becomes readable when a run
 * comes or goes. A folder may be made, or removed: call this again after registry_changed(). A run that was
 * killed leaves its entry, and shows only at its socket, which closes.
 */
void registry_watch(int fd);

/** Take what `fd` has. Returns true if a run may have come or gone. */
bool registry_changed(int fd);

#endif
