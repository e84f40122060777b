/*
 * What a model is inside: where its parameters are, their memory on this rank, and up to two programs that
 * run on them. The programs are for training and for evaluation, each with an arena of its own. Which file
 * owns which part:
 *   model.c       making and destroying a model         program.c      making a program
 *   sharding.c    the layout and its groups of ranks    program_io.c   batches and logits on a device
 *   parameters.c  this rank's shards                    run.c          running a program
 *   initial.c     initial values                        step.c         a step: batches, calls, agreements
 *   gradients.c   norms and checks of gradients         replan.c       new plans after setters
 *   in_backward.c optimizers that update in backward    agree.c        agreement between ranks
 *   unshard.c     parameters gathered by hand           evaluate.c     evaluation
 *   copies.c      copies in a tensor group
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <fsdp/model.h>

#include "shard_runtime/engine/place.h"
#include "shard_runtime/nn/nn.h"
#include "shard_runtime/plan/plan.h"
#include "shard_runtime/plan/policies.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shard/param_group.h"

/**
 * The ranks that units are sharded over, and the replicas of these: a mesh that fsdp_fully_shard() was given.
 */
struct model_mesh {
    const struct fsdp_device_mesh *mesh; /* NULL: all ranks of the world shard */
    int W, R;                            /* ranks that shard, and replicas of these */
    int shard_rank, replica_rank;        /* this rank's place among both */
    /* the groups of these two kinds of ranks; borrowed from the mesh or the context */
    struct fsdp_comm *shards, *replicas;
    /* a separate group for reduce-scatters, if a unit asked for one; NULL: `shards` is used */
    struct fsdp_comm *own_reduces;
    double squares; /* the sum of this rank's squared gradients in the last step */
};

/** The ranks of a mesh that gather slices of 1 / k together. */
struct model_part {
    int k;
    const struct model_mesh *mesh;
    struct fsdp_comm *comm;
};

/** Batches and logits on a device with memory of its own. Empty on other devices. */
struct program_io {
    void *inputs;        /* on the device: for each forward its input and, from targets_at on, its targets */
    size_t input_bytes;  /* of one forward's input */
    size_t targets_at;   /* in the bytes of one forward */
    size_t inputs_bytes; /* of one forward, both together */
    float *logits;       /* page-locked: logits of an evaluation; NULL until they are asked for */
    size_t logits_bytes;
};

/** A recording with its plan, prepared products, arena and events. */
struct program {
    struct fsdp_context *context;
    struct graph graph;
    struct plan plan;
    struct nn_kernels kernels;
    char *arena;
    size_t arena_bytes;
    struct device_event **events; /* of each entry; NULL: it records none */
    /* the second thread, which runs collectives; NULL: the caller's thread runs them */
    struct overlap *overlap;
    const void **whole_grads; /* room for the addresses of one group's gradients, while they are packed */
    /* (n_entries) for each entry the number of its layer or unit, for context_place() */
    uint32_t *places;
    /* the batch of each forward, which operations read until the last backward */
    struct fsdp_batch *batches;
    int next_call, next_entry; /* what runs next; 0 at the beginning */
    uint64_t hash;             /* plan_hash() */
    /* a whole step was run in which all ranks had this plan and compared their collectives */
    bool compared;
    bool calls_known; /* the current call need not compare the calls again; equal on all ranks */
    struct program_io io;
    /*
     * A run adds to these members, not to the caller's variables, because a device may still write after a
     * failed run.
     */
    double loss_sum;
    uint64_t n_targets;
    /** Called before each entry that takes part, and with n_entries after the last one; NULL: not called. */
    void (*observe)(void *observer, int entry);
    void *observer;
};

/** The shards in one kind of place, of all groups that have theirs there, in the order of the groups. */
struct model_memory {
    float *parameters;
    float *gradients; /* NULL without training; on a device they are the beginning of training's arena */
    size_t parameter_bytes, gradient_bytes;
    size_t reduced_elems; /* elements of gradients without those of ignored parameters, which come last */
};

/** The initial values of one parameter. */
struct initial_values {
    uint64_t key; /* of its random numbers */
    bool pending; /* nothing has filled the parameter, so its values must still be drawn */
};

/** What happened to a group of the layout in the current step. */
struct model_group_state {
    bool final;   /* the group's gradients are final in the backward that runs, and its hook was called */
    bool updated; /* by fsdp_optimizer_step_group() */
};

struct fsdp_model {
    struct fsdp_context *context;
    struct fsdp_model *next; /* in the context's list of models */
    struct fsdp_module *root;
    struct fsdp_model_options options;

    /* Which ranks share it. */
    struct model_mesh *meshes; /* the meshes of all units, the root's first; all have the same ranks */
    int n_meshes;
    int data_ranks; /* how many ranks compute on samples of their own; these are the ranks of each mesh */
    /*
     * T: ranks that share the parts of split modules; tensor_rank: this rank's place among them. 1 and 0 if
     * nothing is split
     */
    int T, tensor_rank;
    const struct fsdp_device_mesh *tensor_mesh;
    struct fsdp_comm *tensor; /* borrowed from that mesh */
    /*
     * "": all ranks of each tensor group compute with the same machine. Otherwise it is not empty on any
     * rank. Rank 0 has the words of the lowest rank whose machine is not that of part 0 of its group
     */
    char machines_differ[FSDP_ERR_MESSAGE_BYTES];
    /* (one for each group) parameters that the user gathered by hand between steps */
    struct fsdp_unshard_handle *unsharded;
    /* (one for each mesh and each k of its groups) the ranks that gather slices together */
    struct model_part *parts;
    int n_parts;
    int *ranks; /* (world size) room to list the ranks of a group that is being opened */

    /* Its parameters. */
    /* graph that `layout` was made from; only its groups and parameters are used */
    struct graph layout_graph;
    struct plan layout;
    struct param_group *groups; /* this rank's shards of each group of the layout */
    /* for groups that round stochastically; the step number is the optimizer's */
    struct rounding_draws draws;
    struct model_memory memory[N_PLACES];
    struct initial_values *initial; /* of each parameter of the layout */
    int n_pending;                  /* parameters whose initial values must still be drawn */
    size_t n_drawn;                 /* elements of initial values that this rank has written */

    /* The current step. */
    /*
     * a factor for gradients when they are reduced, so that they become the mean over a step of several calls
     */
    double loss_scale;
    double grad_scale;       /* another factor for gradients when they are reduced, which clipping sets */
    bool more_to_come;       /* the next call will not be the last of the step */
    bool same_plan;          /* all ranks have had the same plan in each call of this step so far */
    double own_loss_sum;     /* this rank's part of the sum from which the last loss was computed */
    bool completed;          /* hooks on final gradients were called in this step; */
    bool spoiled;            /* by some rank, and the step failed */
    bool hooks_talk;         /* hooks on reduced gradients were seen to call collectives of their own */
    uint64_t n_steps_begun;  /* those that failed included */
    bool has_gradients;      /* after a whole step with targets, until the next step begins */
    bool used;               /* fsdp_optimizer_step() has taken these gradients */
    int nonfinite_parameter; /* the first parameter whose gradient is not finite on some rank; -1: none */
    size_t n_micro_done;     /* micro-steps of a step whose last call has not run yet; */
    uint64_t step_targets;   /* and their targets */
    bool loss_is_nonfinite;  /* of some forward of this step */
    struct model_group_state *in_step; /* of each group */

    /* groups were updated in a step that failed or was dropped, and no checkpoint was loaded since */
    bool torn;
    int64_t loaded_step; /* the step of the checkpoint that was loaded into the model; -1: none */
    struct program training, evaluation;
    size_t eval_batch, eval_seq; /* of the evaluation; 0: there is none */
    struct policies planned;     /* the policies that both programs follow */
    bool replanned;              /* the current call made both programs again */
};

/** The data that calls of a program read, and the places where they leave their results. */
struct program_input {
    const struct fsdp_batch *batches; /* the batches of the forwards among the calls; targets NULL: no loss */
    int n_calls;                      /* how many calls run, beginning with the program's next call */
    /* this rank has failed already, and only takes part in the collectives */
    bool fails;
    const struct fsdp_err *why; /* why this rank has failed; NULL: no message is known */
    /* micro: the number, in the step, of the program's first micro-step; n_micro: micro-steps of the step */
    size_t micro, n_micro;
    float scale;         /* factor of the loss's gradient: W / count of targets */
    double *loss_sum;    /* added to */
    uint64_t *n_targets; /* added to */
};

/** Check numbers and enumerators. FSDP_ERR_ARG names the first one that makes no sense. */
enum fsdp_status model_check_options(const struct fsdp_model_options *options, struct fsdp_err *err);

/**
 * Record, prepare and plan a program, without memory on the device. It must be destroyed after a failure as
 * well. Errors as graph_record(), prepare() and plan_make() give them.
 */
enum fsdp_status program_plan(struct program *program, const struct fsdp_model *model, size_t batch,
                              bool training, size_t seq, struct fsdp_err *err);

/**
 * program_plan(), and memory and events for it. The program uses the model's parameters. It must be destroyed
 * after a failure as well.
 */
enum fsdp_status program_create(struct program *program, struct fsdp_model *model, size_t batch,
                                bool training, size_t seq, struct fsdp_err *err);
void program_destroy(struct program *program);

/**
 * Fill in the sizes of program->io. Returns the bytes that batches take on the device; 0 if it reads host
 * memory.
 */
size_t program_io_measure(struct program *program);
/** Make that room. */
enum fsdp_status program_io_create(struct program *program, struct fsdp_err *err);
void program_io_destroy(struct program *program);
/**
 * Queue copies of the batch of forward number `forward` to the device, if it needs them. The pointers in
 * *batch (targets may be NULL) then show what operations read.
 */
void program_io_send(struct program *program, int forward, struct fsdp_batch *batch);
/**
 * Waits for the logits that a run left at `on_device`. Sets *logits to a copy of them in host memory, which
 * is valid until the next call.
 */
enum fsdp_status program_io_logits(struct program *program, const float *on_device, const float **logits,
                                   struct fsdp_err *err);

/**
 * Run the entries of the next input->n_calls calls. On return all streams are done. After the last call, and
 * after a failure, the program is at its beginning again.
 *
 * A rank on which an entry fails still enters every later collective, and returns its failure at the end. If
 * a collective itself failed, the model's groups are broken: see model_is_broken().
 */
enum fsdp_status program_run(struct program *program, struct fsdp_model *model,
                             const struct program_input *input, struct fsdp_err *err);
/** How many calls the program has, forwards and backwards together. */
int program_calls(const struct program *program);
/** Go back to the beginning. */
void program_rewind(struct program *program);

/**
 * Does the entry run a function of the user's? The plan does not know which collectives such a function
 * calls.
 */
bool program_runs_users_function(const struct program *program, const struct plan_entry *entry);

/**
 * Call it after the arena of training was allocated. It tells each group where its gradient shards are: on
 * the device it begins with them (plan/gradients.c). They are zero.
 */
void model_place_gradients(struct fsdp_model *model);
/** Call it before that arena is freed: takes the addresses of gradient shards away from the groups. */
void model_lose_gradients(struct fsdp_model *model);

/** The memory that a group of the layout has its shards in. */
enum shard_place model_place(const struct fsdp_model *model, int group);
/** Was the model made for training, and has it parameters that are trained? */
bool model_has_gradients(const struct fsdp_model *model);

/** Make model->layout: groups and parameters, which plans of training and of evaluation have in common. */
enum fsdp_status model_make_layout(struct fsdp_model *model, struct fsdp_err *err);
void model_drop_layout(struct fsdp_model *model);

/**
 * replan.c: make both programs again if the user has called setters since they were made. `within`, `is_last`
 * and `single` as in policies_compare(). Not collective. The caller makes the ranks agree on the outcome; if
 * one rank failed, all ranks call model_plan_again().
 *   FSDP_ERR_ARG    it is too late for what was set, in this step or for ever; the programs are as before
 *   FSDP_ERR_NOMEM  no room for another arena; there are no programs until a later call has made them
 */
enum fsdp_status model_follow_setters(struct fsdp_model *model, bool within, bool is_last, bool single,
                                      struct fsdp_err *err);
/** Makes the next call plan again, on all ranks, because one rank failed to. */
void model_plan_again(struct fsdp_model *model);
/** Returns the policies that are set on the units now. */
struct policies model_policies(const struct fsdp_model *model);

/** Fill in the meshes: those that units are sharded over, and the one that modules are split over. */
enum fsdp_status model_join_mesh(struct fsdp_model *model, struct fsdp_err *err);

/**
 * Make room for model_open_comms(). After it, that can fail only if a group cannot be opened, which breaks
 * the model's groups.
 */
enum fsdp_status model_prepare_comms(struct fsdp_model *model, struct fsdp_err *err);
/**
 * Open the groups of ranks that the layout needs in addition to the meshes' own: own_reduces and parts.
 * Collective.
 */
enum fsdp_status model_open_comms(struct fsdp_model *model, struct fsdp_err *err);
void model_close_comms(struct fsdp_model *model);
/** The group of this rank and the others of `mesh` with which it gathers slices of 1 / k. */
struct fsdp_comm *model_part(const struct fsdp_model *model, const struct model_mesh *mesh, int k);
/** The mesh that a group of the layout is sharded over. */
const struct model_mesh *model_mesh(const struct fsdp_model *model, int group);
/** For plan_options.ranks_of; `user` is the model. */
void model_ranks_of(const void *user, const struct fsdp_module *unit, int *W, int *R);
/** The group of ranks of the model's tensor mesh; NULL if `mesh` is NULL. */
struct fsdp_comm *model_tensor_comm(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh);

/**
 * List in ranks[0 ... mesh->W - 1] the ranks, this one included, that shard over `mesh` together, in order.
 */
void model_list_shards(const struct fsdp_model *model, const struct model_mesh *mesh, int *ranks);
/** Does any unit ask for a group of ranks of its own for reductions? */
bool model_wants_separate_reduces(const struct fsdp_model *model);
/** The bytes that a group of `n` ranks, in ascending order, keeps on each of them. */
typedef size_t (*model_group_bytes_fn)(const int *ranks, int n, int ranks_per_host);
/** The sum of `bytes_of` over the model's groups of ranks that this rank is in. */
size_t model_group_bytes(const struct fsdp_model *model, model_group_bytes_fn bytes_of, int ranks_per_host);
/**
 * Bytes of host memory that this rank keeps to itself for moving data in those groups, once they were used.
 */
size_t model_staging_bytes(const struct fsdp_model *model, int ranks_per_host);
/** Bytes of the segments that this rank maps, and shares with other ranks of its host. */
size_t model_shared_bytes(const struct fsdp_model *model, int ranks_per_host);
/** Returns the bytes of all shared-memory segments of a host, each counted once. */
size_t model_node_shared_bytes(const struct fsdp_model *model, int ranks_per_host);
/** Fill in the sizes of model->memory from the layout. FSDP_ERR_NOMEM: they do not fit an address space. */
enum fsdp_status model_measure_memory(struct fsdp_model *model, struct fsdp_err *err);

/**
 * All-reduce over the ranks that compute on samples of their own. Collective over them; one rank alone does
 * nothing.
 */
enum fsdp_status model_reduce_over_data(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                        enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);
/**
 * All-reduce over all ranks that share the model: those of model_reduce_over_data(), and the tensor group.
 * Collective over them.
 */
enum fsdp_status model_reduce_over_all(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);

/**
 * Copy `buffer` (size_bytes) of the model's lowest rank to all ranks that share the model. Collective over
 * them. (A model with a tensor group consists of all ranks of the world.)
 */
enum fsdp_status model_broadcast(const struct fsdp_model *model, void *buffer, size_t size_bytes,
                                 struct fsdp_err *err);

/**
 * Leave all groups of ranks that the model uses, the world's too. The other ranks read `status` and the words
 * in `err`, and no longer wait for this rank. If this rank leaves because another one left, that rank's
 * number and words are put into `err` as far as they can be had. Thread: the one that calls collectives,
 * between two of them.
 */
void model_break(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err);
/**
 * Gives the second thread the groups of ranks in which it gathers and reduces (`lent`), or takes them back.
 * See comm_lend().
 */
void model_lend(struct fsdp_model *model, bool lent);
/** Did a collective fail in a group of ranks that the model uses? Thread: the one that calls collectives. */
bool model_is_broken(const struct fsdp_model *model);

/**
 * agree.c: context_agree() among all ranks that share the model. It also adds up `sums` (n, at most
 * MODEL_MAX_SUMS) over the ranks that compute on samples of their own. If a group of the model is broken, a
 * rank that failed returns `own` at once.
 *
 * Every collective entry point calls it, in one of two ways:
 *   - before its first collective, once everything was checked and allocated; after it, only a broken group
 *     can fail;
 *   - after its last collective, if a rank that fails takes part in the collectives all the same (a step, an
 *     evaluation).
 */
enum { MODEL_MAX_SUMS = 5 };
enum fsdp_status model_agree(struct fsdp_model *model, double *sums, size_t n, enum fsdp_status own,
                             struct fsdp_err *err);
/** As model_agree(). In addition, *flag becomes true on every rank if it was true on any rank. */
enum fsdp_status model_agree_with_flag(struct fsdp_model *model, double *sums, size_t n, bool *flag,
                                       enum fsdp_status own, struct fsdp_err *err);
/**
 * context_agree() among the ranks that are about to make a model of `root`. Only the tree says which ranks
 * these are:
 *   - the ranks of the root's mesh, if that and the tensor group do not make up the whole world;
 *   - all ranks of the world otherwise, also if `root` is NULL or has no mesh of this context.
 */
enum fsdp_status tree_agree(const struct fsdp_context *context, const struct fsdp_module *root,
                            enum fsdp_status own, struct fsdp_err *err);

/**
 * copies.c: sets model->machines_differ. Machines are compared as fsdp_context_describe() writes them: as a
 * checkpoint and a resume compare them. Collective; FSDP_ERR_PEER: a group is broken.
 */
enum fsdp_status copies_compare(struct fsdp_model *model, struct fsdp_err *err);
/**
 * If machines differ, replaces the copies of this rank by those of part 0 of its tensor group: its rows of
 * the parameters that are trained and not split. Leaves ignored parameters alone. Collective then, otherwise
 * it does nothing. Called after an update. FSDP_ERR_PEER: a group is broken.
 */
enum fsdp_status copies_equalise(const struct fsdp_model *model, struct fsdp_err *err);

/** Returns what the module tree is recorded for: the model's options, these sizes, training or not. */
struct graph_input model_input(const struct fsdp_model *model, size_t batch, size_t seq, bool training);

/** How many forwards run before a backward: at least 1. */
size_t model_forwards(const struct fsdp_model *model);

/** The options of plans of this model. */
struct plan_options model_plan_options(const struct fsdp_model *model, bool training);

/**
 * Does a second thread run this model's collectives? The model's options decide, or else
 * context_has_idle_time().
 */
bool model_overlaps(const struct fsdp_model *model);

/**
 * initial.c: initial values are drawn when something first reads a value. So a parameter costs nothing if a
 * checkpoint, a file or the program fills it before that.
 *
 * model_plan_initial() notes that every parameter is to get its initial values. It writes none.
 *   FSDP_ERR_NOMEM  no room for the notes
 */
enum fsdp_status model_plan_initial(struct fsdp_model *model, struct fsdp_err *err);
/**
 * Draw the initial values of this rank's rows of every parameter that nothing has filled. Each function that
 * reads values, or shows where they are, calls it first. Not collective. Returns at once where nothing is
 * left to draw.
 *   FSDP_ERR_DEVICE  a copy to the device failed
 */
enum fsdp_status model_draw(struct fsdp_model *model, struct fsdp_err *err);
/** Note that this rank's rows of parameter `index` have their values, so that nothing is drawn for it. */
void model_is_filled(struct fsdp_model *model, int index);

/**
 * Lists the same as fsdp_model_state(), but does not draw initial values first: for callers that will fill
 * what is listed.
 */
void model_list_state(struct fsdp_model *model, struct fsdp_tensor_shard *out);

/**
 * Walk over the runs of this rank's shard of parameter `index`: where each is in the shard and in the whole.
 */
struct layout_walk model_walk(const struct fsdp_model *model, int index);

/** Returns how many ranks parameter `index` is cut over. *rank is this rank's place among them. */
int model_cut(const struct fsdp_model *model, int index, int *rank);

/**
 * Returns where this rank's shard of parameter `index`, or of its gradient, begins in memory. *n_elems
 * receives its elements without padding. NULL, with 0: there is no such gradient.
 */
float *model_shard(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems);

/** The factor that gradients of `group` must be multiplied with to be the step's. */
double model_gradient_scale(const struct fsdp_model *model, int group);

/**
 * gradients.c. Checks that there are gradients of a whole step. FSDP_ERR_ARG: there are none. Every rank gets
 * the same answer.
 */
enum fsdp_status gradients_check(const struct fsdp_model *model, struct fsdp_err *err);
/**
 * The sum of |x|^norm_type over this rank's share of the gradients of `mesh`; with INFINITY the largest |x|.
 * A gradient that several ranks hold alike is in the share of one of them.
 */
double gradients_sum_powers(const struct fsdp_model *model, const struct model_mesh *mesh, double norm_type);
/**
 * Fill in `squares` of all meshes. *finite says whether all gradients that this rank holds are finite. Waits
 * for the device.
 */
enum fsdp_status gradients_measure(struct fsdp_model *model, bool *finite, struct fsdp_err *err);
/**
 * Returns the number of the first parameter of `group` (-1: of any group) whose gradient is not finite on
 * this rank; -1: there is none.
 */
int gradients_find_nonfinite(const struct fsdp_model *model, int group);
/**
 * Set model->nonfinite_parameter to the first one that any rank finds. Collective over all ranks that share
 * the model.
 */
enum fsdp_status gradients_agree_on_nonfinite(struct fsdp_model *model, struct fsdp_err *err);
/** Fail with FSDP_ERR_NOT_FINITE and the name of parameter `index`. */
enum fsdp_status gradients_fail_nonfinite(const struct fsdp_model *model, int index, struct fsdp_err *err);

/**
 * in_backward.c. Does any unit have a hook on final gradients, so that an optimizer updates groups in
 * backward?
 */
bool model_updates_in_backward(const struct fsdp_model *model);
/**
 * A step failed with `status`, which is returned. If any rank updated groups in it, their names are added to
 * the words, and the model counts as torn. Collective over all ranks that share the model, unless one of
 * their groups is broken.
 */
enum fsdp_status model_tell_updates(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err);
/**
 * Call it when the last step is dropped, or when another step begins. If groups were updated in that step,
 * and fsdp_optimizer_step() did not end it, the model counts as torn.
 */
void model_note_dropped(struct fsdp_model *model);
/**
 * FSDP_ERR_ARG: the model is torn: some parameters have an update that others lack. The same on every rank.
 */
enum fsdp_status model_check_not_torn(const struct fsdp_model *model, struct fsdp_err *err);

/**
 * The number of parameter `name`, which must have n_elems elements. -1: there is none, and `err` says so
 * (FSDP_ERR_ARG).
 */
int model_find_parameter(const struct fsdp_model *model, const char *name, size_t n_elems,
                         struct fsdp_err *err);

/**
 * Fills in what fsdp_model_state() says about parameter `index`, except where the data is. The parameter's
 * optimizer state is described in the same way.
 */
void model_tensor_shard(const struct fsdp_model *model, int index, struct fsdp_tensor_shard *out);

/** model_shard() without memory: does the shard exist, and how many elements has it? */
bool model_shard_elems(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems);

#endif
