#include "shard_runtime/objectstore/curl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/socket.h>

#include "shard_runtime/core/library.h"

static const char file[] = "libcurl.so.4"; /* the same since 2006 */

static const struct library_function functions[] = {
#define FUNCTION(name) { #name, offsetof(struct curl_library, name) },
    CURL_LIBRARY_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static enum fsdp_status open_once(const char *user, const struct curl_library **library, struct fsdp_err *err)
{
    static struct curl_library opened;
    static void *handle;
    static bool begun;
    const char *missing;

    if (begun) {
        *library = &opened;
        return FSDP_OK;
    }
    if (handle == NULL)
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s needs libcurl (Debian: libcurl4): %.160s", user,
                         dlerror());
    missing = library_look_up(handle, &opened, functions, sizeof functions / sizeof *functions);
    if (missing != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s has no %s", file, missing);
    if (opened.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s cannot be used: its start failed", file);
    begun = true;
    *library = &opened;
    return FSDP_OK;
}

enum fsdp_status curl_library_open(const char *user, const struct curl_library **library,
                                   struct fsdp_err *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    enum fsdp_status status;

    *library = NULL;
    pthread_mutex_lock(&mutex);
    status = open_once(user, library, err);
    pthread_mutex_unlock(&mutex);
    return status;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg, (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool curl_library_set_up(const struct curl_library *library, CURL *easy, char words[CURL_ERROR_SIZE])
{
    bool set = true;

    set &= library->curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK;
    set &= library->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    set &= library->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, words) == CURLE_OK;
    set &= library->curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK;
    return set;
}
