/*
 * libcurl, which is opened when an etcd or an object store is asked for the first time. It brings twenty more
 * libraries, and other runs need none of them. The types are those of libcurl's own headers.
 */
#ifndef OBJECTSTORE_CURL_LIBRARY_H
#define OBJECTSTORE_CURL_LIBRARY_H

/*
 * Without this, curl_easy_setopt() is a macro that checks types, and a macro cannot be a member of a struct.
 */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdbool.h>

#include <fsdp/status.h>

/* clang-format off */
#define CURL_LIBRARY_FUNCTIONS(X) \
    X(curl_easy_cleanup) X(curl_easy_getinfo) X(curl_easy_init) X(curl_easy_perform) X(curl_easy_setopt) \
    X(curl_easy_strerror) X(curl_global_init) X(curl_slist_append) X(curl_slist_free_all)
/* clang-format on */

struct curl_library {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name in parentheses declares nothing */
#define CURL_LIBRARY_MEMBER(name) __typeof__(&name) name;
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
#undef CURL_LIBRARY_MEMBER
};

/**
 * Opens the library, which is the same for all callers and never closed. FSDP_ERR_UNSUPPORTED: it is not
 * installed, or lacks a function. *library is then NULL, and another call tries again. Any thread may call.
 *   user  who needs it, for the message
 */
enum fsdp_status curl_library_open(const char *user, const struct curl_library **library,
                                   struct fsdp_err *err);

/**
 * Sets what every connection of ours has: HTTP 1.1, no signals, and a socket that programs which this one
 * starts do not inherit. The words of an error go to `words`, which is borrowed by `easy`. Returns false if
 * something could not be set.
 */
bool curl_library_set_up(const struct curl_library *library, CURL *easy, char words[CURL_ERROR_SIZE]);

#endif
