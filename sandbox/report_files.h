/*
 * report_files.h - how the files of SANDBOX_REPORT_DIR leave a sandbox: one sealed memfd.
 *
 * A sequence of records, little endian: u32 name_len, u32 flags (1 = cut at the size cap),
 * u64 size, name bytes, content bytes; no padding, no terminator. Names are single path
 * components as the sandbox made them: foreign bytes. Only regular files with one link are
 * taken, opened beneath the directory without following links; all else is left out.
 */
#pragma once
#define REPORT_FILES_TOTAL_MAX ((uint64_t)16 << 20)
