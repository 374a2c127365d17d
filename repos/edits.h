/*
 * edits.h - the changed files of a patched tree, as the sandbox's writable layer receives them.
 *
 * A sealed memfd: 8 bytes magic "ASEDIT1\n", u64 count, then records, little endian:
 *   u32 kind (1 write file, 2 write symlink, 3 delete file or link), u32 mode (0644, 0755; 0 else),
 *   u32 path_len, u32 reserved 0, u64 size, path bytes, content bytes (file content, or link target)
 * Paths are relative, '/'-separated, without empty, "." or ".." components, never below ".git".
 * Written by assay-worker, applied by the sandbox's own init *inside* the sandbox, unprivileged, so
 * that no privileged process ever walks a foreign path.
 */
#pragma once
#define EDITS_MAGIC "ASEDIT1\n"
enum { EDIT_WRITE = 1, EDIT_LINK = 2, EDIT_DELETE = 3 };
