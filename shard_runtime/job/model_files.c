#include "shard_runtime/job/model_files.h"

#include <inttypes.h>
#include <string.h>

const char *const job_gpt2_passed_over[JOB_GPT2_PASSED_OVER] = { "h.*.attn.bias", "h.*.attn.masked_bias",
                                                                 "lm_head.weight" };

static bool is_gpt2(const struct job *job)
{
    return strcmp(job->model.kind, "gpt2") == 0;
}

const char *const *job_weights_passed_over(const struct job *job, size_t *n)
{
    *n = is_gpt2(job) ? JOB_GPT2_PASSED_OVER : 0;
    return job_gpt2_passed_over;
}

const char *job_weights_prefix(const struct job *job)
{
    return is_gpt2(job) ? JOB_GPT2_PREFIX : "";
}

/*
 * Writes the keys that the library transformers has in its GPT2Config. In the published vocabulary of 50257
 * tokens, the last token marks both the beginning and the end of a text.
 */
static void add_gpt2_config(const struct job *job, struct json_text *out)
{
    const double p = job->model.dropout;

    json_add(out, "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n");
    json_add(out, "  \"vocab_size\": %" PRIu64 ",\n  \"n_positions\": %" PRIu64 ",\n", job->model.vocab,
             job->model.seq);
    json_add(out,
             "  \"n_embd\": %" PRIu64 ",\n  \"n_layer\": %" PRIu64 ",\n  \"n_head\": %" PRIu64
             ",\n  \"n_inner\": null,\n",
             job->model.dim, job->model.layers, job->model.heads);
    json_add(out, "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n");
    json_add(out, "  \"attn_pdrop\": %g,\n  \"embd_pdrop\": %g,\n  \"resid_pdrop\": %g,\n", p, p, p);
    json_add(out, "  \"initializer_range\": 0.02,\n  \"tie_word_embeddings\": true,\n");
    if (job->model.vocab == 50257)
        json_add(out, "  \"bos_token_id\": 50256,\n  \"eos_token_id\": 50256,\n");
    else
        json_add(out, "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n");
    json_add(out, "  \"torch_dtype\": \"float32\"\n}\n");
}

static void add_own_config(const struct job *job, struct json_text *out)
{
    json_add(out, "{\n  \"model_type\": \"fsdprun-transformer\",\n");
    json_add(out, "  \"layers\": %" PRIu64 ",\n  \"dim\": %" PRIu64 ",\n  \"heads\": %" PRIu64 ",\n",
             job->model.layers, job->model.dim, job->model.heads);
    json_add(out, "  \"vocab\": %" PRIu64 ",\n  \"seq\": %" PRIu64 ",\n  \"dropout\": %g,\n",
             job->model.vocab, job->model.seq, job->model.dropout);
    json_add(out, "  \"causal\": %s,\n  \"tied\": %s,\n", job->model.causal ? "true" : "false",
             job->model.tied ? "true" : "false");
    json_add(out, "  \"norm\": \"%s\"\n}\n", job->model.norm == JOB_RMSNORM ? "rmsnorm" : "layernorm");
}

void job_model_config(const struct job *job, struct json_text *out)
{
    if (is_gpt2(job))
        add_gpt2_config(job, out);
    else
        add_own_config(job, out);
}
