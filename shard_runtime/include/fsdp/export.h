/*
 * Which symbols libfsdp.so shows. Everything else in the library is hidden (-fvisibility=hidden).
 */
#ifndef FSDP_EXPORT_H
#define FSDP_EXPORT_H

#define FSDP_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define FSDP_BEGIN_DECLS extern "C" {
#define FSDP_END_DECLS   }
#else
#define FSDP_BEGIN_DECLS
#define FSDP_END_DECLS
#endif

#endif
