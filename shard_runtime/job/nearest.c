#include "shard_runtime/job/nearest.h"

#include <string.h>

#include "shard_runtime/core/spelling.h"

/* Names of our keys in PyTorch, transformers, Lightning, nanoGPT and similar programs. */
static const struct {
    const char *path, *names; /* `names` is a list separated by '|' */
} called[] = {
    { "run.name", "run_name|experiment" },
    { "run.dir", "output_dir|out_dir|output|log_dir" },
    { "run.seed", "random_seed|manual_seed" },
    { "run.log_every", "log_interval|logging_steps|log_every_n_steps|log_freq" },
    { "run.device", "accelerator" },
    { "run.collectives", "backend" },
    { "launch.nproc_per_node", "nproc|nprocs|num_processes|num_gpus|gpus|devices|world_size" },
    { "launch.nnodes", "nodes|num_nodes|num_machines" },
    { "launch.threads", "num_threads|omp_num_threads" },
    { "data.path", "dataset|file|train_file|data_path|train_data" },
    { "data.order", "shuffle" },
    { "model.kind", "type|arch|architecture|model_type" },
    { "model.layers", "num_layers|n_layers|n_layer|num_hidden_layers|depth" },
    { "model.dim", "hidden_size|hidden_dim|d_model|n_embd|embed_dim|width" },
    { "model.heads", "num_heads|n_heads|n_head|nhead|num_attention_heads" },
    { "model.vocab", "vocab_size" },
    { "model.seq",
      "seq_len|seq_length|sequence_length|max_seq_len|max_length|block_size|context_length|n_ctx|"
      "n_positions|max_position_embeddings" },
    { "model.tied", "tie_word_embeddings|tie_embeddings|weight_tying" },
    { "model.weights", "checkpoint|pretrained|init_from|model_path" },
    { "train.steps", "max_steps|num_steps|n_steps|train_steps|total_steps|max_iters|iters|iterations" },
    { "train.batch", "bs|batch_size|micro_batch_size|micro_batch|train_batch_size|local_batch_size|"
                     "per_device_train_batch_size|device_batch_size" },
    { "train.global_batch", "global_batch_size|gbs|total_batch_size|effective_batch_size" },
    { "train.grad_accumulation",
      "gradient_accumulation_steps|grad_accumulation_steps|accumulate_grad_batches|"
      "grad_accum|grad_accum_steps|accumulation_steps" },
    { "train.clip_norm",
      "grad_clip|gradient_clip|gradient_clip_val|clip_grad_norm|max_grad_norm|max_norm|clip" },
    { "optimizer.kind", "type|name|optim" },
    { "optimizer.lr", "learning_rate|learningrate|max_lr|base_lr|peak_lr" },
    { "optimizer.betas", "beta1|beta2|adam_betas|adam_beta1|adam_beta2" },
    { "optimizer.eps", "epsilon|adam_epsilon" },
    { "optimizer.weight_decay", "wd|l2" },
    { "optimizer.schedule", "scheduler|lr_scheduler|lr_scheduler_type|lr_schedule" },
    { "optimizer.warmup_steps", "warmup|warmup_iters|num_warmup_steps|lr_warmup_steps" },
    { "parallel.replicate", "dp_replicate|data_parallel_replicate_degree|num_replicas" },
    { "parallel.tensor", "tp|tp_size|tp_degree|tensor_parallel|tensor_parallel_size|tensor_parallel_degree" },
    { "parallel.param_dtype", "dtype|precision|mixed_precision|torch_dtype|bf16" },
    { "parallel.offload", "cpu_offload|offload_params|offload_optimizer" },
    { "parallel.activation_checkpoint", "activation_checkpointing|gradient_checkpointing" },
    { "checkpoint.every", "save_every|save_steps|save_interval|every_n_steps|interval" },
    { "checkpoint.keep", "save_total_limit|save_top_k|max_to_keep|keep_last" },
    { "checkpoint.resume", "resume_from_checkpoint" },
    /* Sections */
    { "data", "dataset" },
    { "model", "network|net" },
    { "train", "training|trainer" },
    { "optimizer", "optim|optimiser" },
    { "parallel", "parallelism|fsdp|sharding|distributed" },
    { "checkpoint", "ckpt|checkpointing|save" },
};

const char *job_nearest_path(size_t i)
{
    return i < sizeof called / sizeof *called ? called[i].path : NULL;
}

static bool is_called(const char *path, const char *name)
{
    for (size_t i = 0; i < sizeof called / sizeof *called; i++)
        if (strcmp(called[i].path, path) == 0)
            return job_list_index(called[i].names, name) >= 0;
    return false;
}

bool job_key_is_called(const struct job_key *key, const char *name)
{
    char path[JOB_KEY_PATH_BYTES];

    return is_called(job_key_path(key, path), name);
}

static const char *nearest_section(const char *name)
{
    const char *found = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < job_sections_size; i++)
        if (is_called(job_sections[i].name, name))
            return job_sections[i].name;
    for (size_t i = 0; i < job_sections_size; i++)
        if (spelling_is_close(name, job_sections[i].name, &best))
            found = job_sections[i].name;
    return found;
}

static const char *nearest_of_section(const char *section, const char *name)
{
    const char *found = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < job_schema_size; i++)
        if (strcmp(job_schema[i].section, section) == 0 && job_key_is_called(&job_schema[i], name))
            return job_schema[i].name;
    for (size_t i = 0; i < job_schema_size; i++)
        if (strcmp(job_schema[i].section, section) == 0 && spelling_is_close(name, job_schema[i].name, &best))
            found = job_schema[i].name;
    return found;
}

/* Finds a key whose section is missing or wrong: first by our name, then by other programs' names. */
static const char *key_of_any_section(const char *name, char out[JOB_KEY_PATH_BYTES])
{
    for (size_t i = 0; i < job_schema_size; i++)
        if (strcmp(job_schema[i].name, name) == 0)
            return job_key_path(&job_schema[i], out);
    for (size_t i = 0; i < job_schema_size; i++)
        if (job_key_is_called(&job_schema[i], name))
            return job_key_path(&job_schema[i], out);
    return NULL;
}

const char *job_nearest(const char *section, const char *name, char out[JOB_KEY_PATH_BYTES])
{
    const char *found = section == NULL ? nearest_section(name) : nearest_of_section(section, name);

    return found != NULL ? found : key_of_any_section(name, out);
}
