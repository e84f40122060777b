/* Marks the symbols that libfsdp.so exports. All others in the library are hidden (-fvisibility=hidden). */
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
