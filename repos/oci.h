/*
 * oci.h - images as files: OCI layouts (a directory, or a tar of one) and what `docker save` writes, old form and new.
 *
 * Theory: everything is named by the digest of its bytes. From the digest of a manifest follow those of its config and layers,
 * and each is checked while it is read, size and all, so that where the bytes came from needs no trust. An old `docker save` has
 * no digests of its files; there the config's name and its diff_ids take their place.
 *
 * Specifications: opencontainers/image-spec (image-layout, image-index, manifest, config); moby image/spec/v1.2.
 */
#pragma once
#include "repos/archive.h"
#include "repos/task.h"

#define OCI_LAYERS_MAX 512u             /* overlayfs takes 500, Docker makes 127 at most */

struct oci_layer {
    const char *name;                   /* "sha256:..." of the blob, or the file of an old docker save */
    uint64_t    size;                   /* of the blob; UINT64_MAX where nothing states it */
    struct digest diff_id;
};

/* What image was chosen; in the arena of oci_choose(). */
struct oci_image {
    const char *name;                   /* as the index has it; "" for none */
    char manifest[DIGEST_HEX_SIZE];     /* "" in an old docker save */
    char config[DIGEST_HEX_SIZE];
    struct str_list env;                /* NAME=VALUE */
    const char *working_dir;            /* "" where the image says nothing */
    const char *user;
    struct str_list entrypoint, cmd;
    struct oci_layer *layers;           /* lowest first */
    uint32_t layer_count;
};

struct oci;
/* A directory, or a plain tar of one. ERR_BAD_INPUT: it is neither form, or compressed as a whole. */
MUST_CHECK int oci_open(struct oci **out, const char *path, struct err *err);
/*
 * The image for linux/amd64 that goes by `want`: a tag or name as an index states it, a Docker name with or without
 * "docker.io/" and "docker.io/library/", or the "sha256:..." of a manifest. "" takes the only one. ERR_NOT_FOUND lists what there is.
 */
MUST_CHECK int oci_choose(struct oci *o, struct oci_image *out, struct arena *a, const char *want, struct err *err);
/* Its layers onto the tree, each checked against its digest, its size and its diff_id. */
MUST_CHECK int oci_apply(struct oci *o, const struct oci_image *image, struct archive_tree *tree, struct err *err);
void oci_close(struct oci *o);          /* NULL is fine */
