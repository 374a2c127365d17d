/*
 * image.c - the erofs writer.
 *
 * Order of work: every node is met once, breadth first, and checked (collect); the time that most of them have becomes the
 * image's own, which short inodes take over (choose_time); each gets its form and size (measure); each gets its place (place);
 * then the bytes are made in memory, where digest and checksum are taken, and written in one go. Breadth first keeps what one
 * `ls -l` reads together, and needs no stack.
 *
 *     byte 1024    superblock, device table (one slot a data file)
 *     then         inodes, each with its xattrs and its chunk index or tail, at multiples of 32: place / 32 is its number
 *     then         whole blocks: long directories, long link targets
 *
 * Short inodes (32 bytes) know neither time nor 32-bit owners, link counts above 65535 or sizes above 4 GiB; what needs one of
 * these gets the long form. Newer kernels add a field to the image's time in a short inode; it stays 0 for the older ones.
 * The root comes first, because its number has 16 bits.
 *
 * A file is one extent of a data file. The device table gives each data file its place in one range of block numbers behind the
 * image's own, so that the inode itself says where the extent lies (flat). Where the data files are too long for that, a file
 * names device and block in a chunk index; the chunk is made so long that one index is enough. Flat inodes take half the room
 * (32 bytes, not 40 in slots of 32) and the kernel one look less at each read.
 */
#include "repos/image.h"
#include "base/digest.h"
#include "base/own.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define SUPER_AT        1024u
#define SUPER_SIZE      128u
#define DEVICE_SIZE     128u
#define SLOT            32u             /* inode numbers count these */
#define SHORT_SIZE      32u
#define LONG_SIZE       64u
#define DIRENT_SIZE     12u
#define INDEX_SIZE      8u
#define XATTR_HEAD      12u
#define XATTR_WORDS_MAX 65534u          /* 16 bits count the words and the head */
#define CHUNK_BITS_MAX  31u             /* chunk = block << bits */
#define LINK_MAX_BYTES  4095u
#define FLAT_BLOCKS_MAX ((uint64_t)1 << 31)     /* of all data files: leaves as much for the image itself */
#define NODES_MAX       (UINT32_MAX / 2)

#define MAGIC           0xE0F5E1E2u
#define COMPAT_CHECKSUM 1u
#define COMPAT_MTIME    2u
#define NEEDS_CHUNKS    4u
#define NEEDS_DEVICES   8u
#define CHUNK_INDEXES   0x20u

enum layout { LAYOUT_PLAIN = 0, LAYOUT_INLINE = 2, LAYOUT_CHUNKS = 4 };     /* erofs' own values */

struct item {
    struct image_node *node;
    const char *name;                   /* its first name, for messages */
    uint32_t parent;                    /* of a directory: its ".."; of others for messages */
    uint32_t links;
    uint32_t dot, dotdot;               /* directory: how many of its entries sort before each */
    uint32_t head;                      /* bytes of inode and xattrs */
    uint32_t tail;                      /* bytes behind them: index, or the last part of what is inline */
    bool     is_long;
    enum layout layout;
    uint64_t size;
    uint64_t at;                        /* byte place of the inode */
    uint64_t block, blocks;             /* whole blocks of its own */
};

struct image {
    struct item *items;
    uint32_t count, cap;
    const uint64_t *data_blocks;
    uint32_t data_count;
    bool     flat;
    int64_t  time_s;
    uint32_t time_ns;
    uint64_t blocks;
    uint8_t *bytes;
};

static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)v; p[1] = (uint8_t)(v >> 8); }
static void put32(uint8_t *p, uint32_t v) { put16(p, v); put16(p + 2, v >> 16); }
static void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)v); put32(p + 4, (uint32_t)(v >> 32)); }
static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* --- collect: meet every node once, refuse what an image cannot hold --- */

/* Names `name` in directory item `parent` as a path; a long one loses its beginning. */
static int refuse(const struct image *im, uint32_t parent, const char *name, struct err *err, const char *what)
{
    char path[300], quoted[400];
    size_t at = sizeof path;
    for (const char *part = name; strlen(part) < at; part = im->items[parent].name, parent = im->items[parent].parent) {
        at -= strlen(part);
        memcpy(path + at, part, strlen(part));
        if (parent == 0)
            break;
        path[--at] = '/';
    }
    err_quote(quoted, sizeof quoted, path + at, sizeof path - at);
    return err_set(err, ERR_BAD_INPUT, "image: %s %s", quoted[0] != '\0' ? quoted : "root", what);
}

static const char *name_fault(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > IMAGE_NAME_MAX)
        return "has a name that is not 1 to 255 bytes long";
    if (strchr(name, '/') != NULL)
        return "has a name with '/'";
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "has a name of the kernel's own" : NULL;
}

static uint64_t blocks_of(uint64_t bytes) { return bytes / IMAGE_BLOCK + (bytes % IMAGE_BLOCK != 0); }

static const char *file_fault(const struct image *im, const struct image_node *n)
{
    if (n->size > INT64_MAX)
        return "is larger than a file can be";
    if (n->size == 0)
        return NULL;
    if (n->data >= im->data_count)
        return "lies in a data file that the image does not have";
    if (n->offset % IMAGE_BLOCK != 0)
        return "does not begin at a block of its data file";
    uint64_t first = n->offset / IMAGE_BLOCK, have = im->data_blocks[n->data];
    return first > have || blocks_of(n->size) > have - first ? "reaches beyond the end of its data file" : NULL;
}

/* erofs' number of an xattr's prefix; *out_rest is what stays of the name. 0: none that it knows. */
static uint8_t xattr_prefix(const char **out_rest, const char *name)
{
    static const struct { const char *prefix; uint8_t number; bool whole; } known[] = {
        { "user.", 1, false }, { "system.posix_acl_access", 2, true }, { "system.posix_acl_default", 3, true },
        { "trusted.", 4, false }, { "security.", 6, false },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i].prefix);
        if (strncmp(name, known[i].prefix, n) != 0 || (name[n] == '\0') != known[i].whole)
            continue;
        *out_rest = name + n;
        return known[i].number;
    }
    return 0;
}

/* Bytes of one entry: name length, prefix, value length; name; value; to a multiple of 4. */
static uint64_t xattr_size(const struct image_xattr *x, const char *rest) { return round_up(4 + strlen(rest) + x->size, 4); }

static uint64_t xattrs_size(const struct image_node *n)
{
    uint64_t size = n->xattr_count > 0 ? XATTR_HEAD : 0;
    const char *rest = "";
    for (uint32_t i = 0; i < n->xattr_count; i++)
        if (xattr_prefix(&rest, n->xattrs[i].name) != 0)
            size += xattr_size(&n->xattrs[i], rest);
    return size;
}

static const char *xattrs_fault(const struct image_node *n)
{
    const char *rest = "";
    for (uint32_t i = 0; i < n->xattr_count; i++) {
        const struct image_xattr *x = &n->xattrs[i];
        if (xattr_prefix(&rest, x->name) == 0)
            return "has an extended attribute that is not user., trusted., security. or an access list";
        if (strlen(x->name) > IMAGE_NAME_MAX || x->size > UINT16_MAX)
            return "has an extended attribute that is too long";
        if (i > 0 && strcmp(n->xattrs[i - 1].name, x->name) >= 0)
            return "has extended attributes that are not sorted by name";
    }
    return xattrs_size(n) > XATTR_HEAD + 4 * XATTR_WORDS_MAX ? "has too many bytes of extended attributes" : NULL;
}

static const char *node_fault(const struct image *im, const struct image_node *n)
{
    if (n->mode > 07777)
        return "has mode bits that are no permissions";
    if (n->mtime_ns >= 1000000000u)
        return "has a time with 1e9 nanoseconds or more";
    if (n->kind == IMAGE_LINK && (n->target == NULL || n->target[0] == '\0' || strlen(n->target) > LINK_MAX_BYTES))
        return "has a link target that is not 1 to 4095 bytes long";
    if (n->kind != IMAGE_FILE && n->kind != IMAGE_DIR && n->kind != IMAGE_LINK)
        return "is neither file, directory nor link";
    const char *fault = n->kind == IMAGE_FILE ? file_fault(im, n) : NULL;
    return fault != NULL ? fault : xattrs_fault(n);
}

/* number is right only where the item says so too: whatever a caller left in it is harmless. */
static struct item *item_of(const struct image *im, const struct image_node *n)
{
    return n->number < im->count && im->items[n->number].node == n ? &im->items[n->number] : NULL;
}

static int meet(struct image *im, struct image_node *n, uint32_t parent, const char *name, struct err *err)
{
    if (n == NULL)
        return refuse(im, parent, name, err, "has no node");
    struct item *known = item_of(im, n);
    if (known != NULL && n->kind == IMAGE_DIR)
        return refuse(im, parent, name, err, "is a directory under a second name");
    if (known != NULL) {
        known->links++;
        return known->links < UINT32_MAX ? 0 : refuse(im, parent, name, err, "has too many names");
    }
    if (im->count == im->cap) {
        uint32_t cap = im->cap != 0 ? im->cap * 2 : 256;
        struct item *more = im->cap < NODES_MAX ? realloc(im->items, sizeof *more * cap) : NULL;
        if (more == NULL)
            return err_set(err, ERR_LIMIT, "image: out of memory for %u nodes", im->count);
        im->items = more;
        im->cap = cap;
    }
    im->items[im->count] = (struct item){ .node = n, .name = name, .parent = parent, .links = n->kind == IMAGE_DIR ? 2 : 1 };
    n->number = im->count++;
    const char *fault = node_fault(im, n);
    return fault == NULL ? 0 : refuse(im, parent, name, err, fault);
}

static int collect(struct image *im, struct image_node *root, struct err *err)
{
    int rc = meet(im, root, 0, "", err);
    if (rc == 0 && root->kind != IMAGE_DIR)
        rc = refuse(im, 0, "", err, "is no directory");
    for (uint32_t at = 0; rc == 0 && at < im->count; at++) {
        struct image_node *dir = im->items[at].node;
        for (uint32_t i = 0; dir->kind == IMAGE_DIR && rc == 0 && i < dir->entry_count; i++) {
            const char *name = dir->entries[i].name, *fault = name_fault(name);
            if (fault == NULL && i > 0 && strcmp(dir->entries[i - 1].name, name) >= 0)
                fault = "is not sorted behind the name before it";
            rc = fault != NULL ? refuse(im, at, name, err, fault) : meet(im, dir->entries[i].node, at, name, err);
            if (rc < 0)
                break;
            struct item *it = &im->items[at];           /* meet() may have moved it */
            it->links += dir->entries[i].node->kind == IMAGE_DIR;
            it->dot += strcmp(name, ".") < 0;
            it->dotdot += strcmp(name, "..") < 0;
        }
    }
    return rc;
}

/* --- directories: entries with "." and "..", in the order of their bytes --- */

struct name { const char *text; uint32_t len; const struct item *item; };

static uint32_t name_count(const struct item *it) { return it->node->entry_count + 2; }

/* The k-th name. */
static struct name name_at(const struct image *im, const struct item *it, uint32_t k)
{
    struct name out;
    if (k == it->dot)
        out = (struct name){ .text = ".", .item = it };
    else if (k == it->dotdot + 1)
        out = (struct name){ .text = "..", .item = &im->items[it->parent] };
    else {
        const struct image_entry *e = &it->node->entries[k - (k > it->dot) - (k > it->dotdot + 1)];
        out = (struct name){ .text = e->name, .item = item_of(im, e->node) };
    }
    out.len = (uint32_t)strlen(out.text);
    return out;
}

/* The names from the k-th on that share a block: where they end, and how many bytes they take. */
static uint32_t block_end(const struct image *im, const struct item *it, uint32_t k, uint32_t *out_bytes)
{
    *out_bytes = 0;
    for (; k < name_count(it); k++) {
        uint32_t more = DIRENT_SIZE + name_at(im, it, k).len;
        if (*out_bytes + more > IMAGE_BLOCK)
            break;
        *out_bytes += more;
    }
    return k;
}

static uint64_t dir_size(const struct image *im, const struct item *it)
{
    uint64_t size = 0;
    for (uint32_t k = 0, bytes; k < name_count(it); ) {
        k = block_end(im, it, k, &bytes);
        size = k < name_count(it) ? size + IMAGE_BLOCK : size + bytes;
    }
    return size;
}

/* --- measure --- */

static bool fits_short(const struct item *it)
{
    const struct image_node *n = it->node;
    return n->uid <= UINT16_MAX && n->gid <= UINT16_MAX && it->links <= UINT16_MAX && it->size <= UINT32_MAX;
}

static int by_time(const void *a, const void *b)
{
    const struct image_node *x = (*(const struct item *const *)a)->node, *y = (*(const struct item *const *)b)->node;
    if (x->mtime_s != y->mtime_s)
        return x->mtime_s < y->mtime_s ? -1 : 1;
    return (x->mtime_ns > y->mtime_ns) - (x->mtime_ns < y->mtime_ns);
}

/* The time that saves most long inodes; of equals the earliest, so that it hangs on the tree alone. */
static int choose_time(struct image *im, struct err *err)
{
    own_mem const struct item **sorted = calloc(im->count, sizeof *sorted);
    if (sorted == NULL)
        return err_set(err, ERR_LIMIT, "image: out of memory for %u nodes", im->count);
    uint32_t n = 0, best = 0;
    for (uint32_t i = 0; i < im->count; i++)
        if (fits_short(&im->items[i]))
            sorted[n++] = &im->items[i];
    qsort(sorted, n, sizeof *sorted, by_time);
    for (uint32_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && by_time(&sorted[from], &sorted[to]) == 0; )
            to++;
        if (to - from <= best)
            continue;
        best = to - from;
        im->time_s = sorted[from]->node->mtime_s;
        im->time_ns = sorted[from]->node->mtime_ns;
    }
    return 0;
}

static uint32_t chunk_bits(uint64_t blocks)
{
    uint32_t bits = 0;
    while (bits < CHUNK_BITS_MAX && blocks > (uint64_t)1 << bits)
        bits++;
    return bits;
}

static void measure(const struct image *im, struct item *it)
{
    const struct image_node *n = it->node;
    it->is_long = !fits_short(it) || n->mtime_s != im->time_s || n->mtime_ns != im->time_ns;
    it->head = (it->is_long ? LONG_SIZE : SHORT_SIZE) + (uint32_t)xattrs_size(n);
    if (n->kind == IMAGE_FILE) {
        uint64_t blocks = blocks_of(it->size), chunk = (uint64_t)1 << chunk_bits(blocks);
        it->layout = blocks > 0 && !im->flat ? LAYOUT_CHUNKS : LAYOUT_PLAIN;
        if (it->layout == LAYOUT_PLAIN)
            return;
        it->head = (uint32_t)round_up(it->head, INDEX_SIZE);
        it->tail = (uint32_t)((blocks + chunk - 1) / chunk) * INDEX_SIZE;
        return;
    }
    it->tail = it->size % IMAGE_BLOCK;
    it->blocks = it->size / IMAGE_BLOCK;
    it->layout = it->tail > 0 && it->head + it->tail <= IMAGE_BLOCK ? LAYOUT_INLINE : LAYOUT_PLAIN;
    if (it->layout == LAYOUT_PLAIN) {
        it->blocks = blocks_of(it->size);
        it->tail = 0;
    }
}

/* --- place --- */

/* An inline tail may not cross a block, and one with its inode in one block is read with it. The rest of the block is kept as a
 * gap for what comes later. */
struct room { uint64_t at, gap, gap_end; };

static uint64_t take(struct room *r, const struct item *it)
{
    uint64_t need = round_up((uint64_t)it->head + it->tail, SLOT);
    if (need <= r->gap_end - r->gap) {
        r->gap += need;
        return r->gap - need;
    }
    uint64_t next = round_up(r->at + 1, IMAGE_BLOCK);
    if (it->layout == LAYOUT_INLINE && r->at + it->head + it->tail > next) {
        if (next - r->at > r->gap_end - r->gap) {
            r->gap = r->at;
            r->gap_end = next;
        }
        r->at = next;
    }
    r->at += need;
    return r->at - need;
}

static int place(struct image *im, struct err *err)
{
    struct room r = { .at = SUPER_AT + SUPER_SIZE + DEVICE_SIZE * im->data_count };
    for (uint32_t i = 0; i < im->count; i++)
        im->items[i].at = take(&r, &im->items[i]);
    im->blocks = blocks_of(r.at);
    for (uint32_t i = 0; i < im->count; i++) {
        im->items[i].block = im->blocks;
        im->blocks += im->items[i].blocks;
    }
    return im->blocks < FLAT_BLOCKS_MAX ? 0 : err_set(err, ERR_LIMIT, "image: its names take 8 TiB");
}

/* --- bytes --- */

static uint16_t format_of(enum image_kind kind)
{
    return kind == IMAGE_DIR ? S_IFDIR : kind == IMAGE_LINK ? S_IFLNK : S_IFREG;
}

/* Every dirent of a block, then every name; the first dirent's name place tells how many there are. */
static void write_names(const struct image *im, const struct item *it, uint8_t *to, uint32_t from, uint32_t end)
{
    uint32_t name_at_byte = (end - from) * DIRENT_SIZE;
    for (uint32_t k = from; k < end; k++) {
        struct name n = name_at(im, it, k);
        uint8_t *d = to + (size_t)(k - from) * DIRENT_SIZE;
        enum image_kind kind = n.item->node->kind;
        put64(d, n.item->at / SLOT);
        put16(d + 8, name_at_byte);
        d[10] = kind == IMAGE_DIR ? 2 : kind == IMAGE_LINK ? 7 : 1;        /* as d_type of readdir's file systems: FT_* */
        memcpy(to + name_at_byte, n.text, n.len);
        name_at_byte += n.len;
    }
}

static uint8_t *block_bytes(const struct image *im, uint64_t block) { return im->bytes + block * IMAGE_BLOCK; }

static void write_dir(const struct image *im, const struct item *it, uint8_t *tail)
{
    uint64_t block = 0;
    for (uint32_t k = 0, end, bytes; k < name_count(it); k = end, block++) {
        end = block_end(im, it, k, &bytes);
        write_names(im, it, block < it->blocks ? block_bytes(im, it->block + block) : tail, k, end);
    }
}

/* Where data file i begins among the block numbers; 0 when it has no such place. */
static uint64_t data_start(const struct image *im, uint32_t i)
{
    uint64_t at = im->blocks;
    for (uint32_t k = 0; k < i; k++)
        at += im->data_blocks[k];
    return im->flat ? at : 0;
}

/* The inode's word about where its content is. */
static uint32_t where_word(const struct image *im, const struct item *it)
{
    const struct image_node *n = it->node;
    if (it->layout == LAYOUT_CHUNKS)
        return CHUNK_INDEXES | chunk_bits(blocks_of(it->size));
    if (n->kind == IMAGE_FILE && n->size > 0)
        return (uint32_t)(data_start(im, n->data) + n->offset / IMAGE_BLOCK);
    return it->blocks > 0 ? (uint32_t)it->block : 0;
}

static void write_chunks(const struct item *it, uint8_t *to)
{
    uint64_t at = it->node->offset / IMAGE_BLOCK, chunk = (uint64_t)1 << chunk_bits(blocks_of(it->size));
    for (uint32_t i = 0; i < it->tail / INDEX_SIZE; i++, at += chunk, to += INDEX_SIZE) {
        put16(to + 2, it->node->data + 1);
        put32(to + 4, (uint32_t)at);
    }
}

static void write_xattrs(const struct image_node *n, uint8_t *to)
{
    to += XATTR_HEAD;                   /* no filter, none shared */
    for (uint32_t i = 0; i < n->xattr_count; i++) {
        const char *rest = "";
        to[1] = xattr_prefix(&rest, n->xattrs[i].name);
        size_t len = strlen(rest);
        to[0] = (uint8_t)len;
        put16(to + 2, n->xattrs[i].size);
        memcpy(to + 4, rest, len);
        if (n->xattrs[i].size > 0)
            memcpy(to + 4 + len, n->xattrs[i].value, n->xattrs[i].size);
        to += xattr_size(&n->xattrs[i], rest);
    }
}

static void write_inode(const struct image *im, const struct item *it)
{
    const struct image_node *n = it->node;
    uint8_t *p = im->bytes + it->at;
    uint64_t xattrs = xattrs_size(n);
    put16(p, (uint32_t)it->layout << 1 | it->is_long);
    put16(p + 2, xattrs > 0 ? 1 + (uint32_t)(xattrs - XATTR_HEAD) / 4 : 0);
    put16(p + 4, format_of(n->kind) | n->mode);
    put32(p + 16, where_word(im, it));
    put32(p + 20, (uint32_t)n->number + 1);
    if (it->is_long) {
        put64(p + 8, it->size);
        put32(p + 24, n->uid);
        put32(p + 28, n->gid);
        put64(p + 32, (uint64_t)n->mtime_s);
        put32(p + 40, n->mtime_ns);
        put32(p + 44, it->links);
    } else {
        put16(p + 6, it->links);
        put32(p + 8, (uint32_t)it->size);
        put16(p + 24, n->uid);
        put16(p + 26, n->gid);
    }
    if (xattrs > 0)
        write_xattrs(n, p + (it->is_long ? LONG_SIZE : SHORT_SIZE));
    uint8_t *tail = p + it->head;
    if (n->kind == IMAGE_DIR)
        write_dir(im, it, tail);
    else if (n->kind == IMAGE_FILE)
        write_chunks(it, tail);
    else
        memcpy(it->blocks > 0 ? block_bytes(im, it->block) : tail, n->target, it->size);
}

/* CRC-32C, reflected, not inverted at the end: as the kernel's crc32c(). */
static uint32_t checksum(const uint8_t *p, size_t n)
{
    uint32_t crc = ~(uint32_t)0;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78u & (0u - (crc & 1)));
    }
    return crc;
}

static void write_super(const struct image *im)
{
    uint8_t *p = im->bytes + SUPER_AT, *device = p + SUPER_SIZE;
    put32(p, MAGIC);
    put32(p + 8, COMPAT_CHECKSUM | COMPAT_MTIME);
    p[12] = 12;                         /* log2 of the block */
    put16(p + 14, (uint32_t)(im->items[0].at / SLOT));
    put64(p + 16, im->count);
    put64(p + 24, (uint64_t)im->time_s);
    put32(p + 32, im->time_ns);
    put32(p + 36, (uint32_t)im->blocks);
    if (im->data_count > 0) {
        put32(p + 80, NEEDS_DEVICES | (im->flat ? 0 : NEEDS_CHUNKS));
        put16(p + 86, im->data_count);
        put16(p + 88, (SUPER_AT + SUPER_SIZE) / DEVICE_SIZE);
    }
    for (uint32_t i = 0; i < im->data_count; i++, device += DEVICE_SIZE) {
        put32(device + 64, (uint32_t)im->data_blocks[i]);
        put32(device + 68, (uint32_t)data_start(im, i));
    }
    /* overlayfs tells its lower layers apart by their UUID: one from the content, in the form that is left to its makers. */
    struct digest d;
    digest_of(&d, im->bytes, im->blocks * IMAGE_BLOCK);
    memcpy(p + 48, d.bytes, 16);
    p[48 + 6] = (p[48 + 6] & 0x0f) | 0x80;
    p[48 + 8] = (p[48 + 8] & 0x3f) | 0x80;
    put32(p + 4, checksum(p, IMAGE_BLOCK - SUPER_AT));
}

static int write_bytes(int fd, const uint8_t *p, uint64_t n, struct err *err)
{
    while (n > 0) {
        ssize_t k = write(fd, p, n < (1u << 30) ? n : 1u << 30);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_sys(err, ERR_SYS, "image: write");
        p += k;
        n -= (uint64_t)k;
    }
    return 0;
}

static uint64_t size_of(const struct image *im, const struct item *it)
{
    const struct image_node *n = it->node;
    return n->kind == IMAGE_FILE ? n->size : n->kind == IMAGE_LINK ? strlen(n->target) : dir_size(im, it);
}

static int build(struct image *im, struct image_node *root, int fd, struct err *err)
{
    int rc = collect(im, root, err);
    for (uint32_t i = 0; rc == 0 && i < im->count; i++)
        im->items[i].size = size_of(im, &im->items[i]);
    if (rc == 0)
        rc = choose_time(im, err);
    for (uint32_t i = 0; rc == 0 && i < im->count; i++)
        measure(im, &im->items[i]);
    if (rc == 0)
        rc = place(im, err);
    if (rc < 0)
        return rc;
    im->bytes = calloc(im->blocks, IMAGE_BLOCK);
    if (im->bytes == NULL)
        return err_set(err, ERR_LIMIT, "image: out of memory for %llu blocks", (unsigned long long)im->blocks);
    for (uint32_t i = 0; i < im->count; i++)
        write_inode(im, &im->items[i]);
    write_super(im);
    return write_bytes(fd, im->bytes, im->blocks * IMAGE_BLOCK, err);
}

int image_write(int fd, struct image_node *root, const uint64_t *data_blocks, uint32_t data_count, struct err *err)
{
    if (data_count > IMAGE_DATA_MAX)
        return err_set(err, ERR_LIMIT, "image: %u data files; an image has at most %u", data_count, IMAGE_DATA_MAX);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < data_count; i++) {
        if (data_blocks[i] >= UINT32_MAX)
            return err_set(err, ERR_LIMIT, "image: data file %u has 16 TiB or more", i);
        blocks += data_blocks[i];
    }
    struct image im = { .data_blocks = data_blocks, .data_count = data_count, .flat = blocks <= FLAT_BLOCKS_MAX };
    int rc = build(&im, root, fd, err);
    free(im.items);
    free(im.bytes);
    return rc;
}
