/* Writes down what programs do to the files below RECORDER_FOLDER, in the order in which it happens, over all processes: loaded
 * into them with LD_PRELOAD. record.py starts them, history.py reads the record.
 *
 * Every call that changes something is made and noted under one lock (RECORDER_LOCK, a file), so that the order in the record
 * is the true one. Whoever kills a process takes the lock before, so that nothing is done and not noted.
 * Not seen: writes through mmap, which SQLite uses for its `-shm` file only; that one is made anew after a power cut. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, RESIZE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR };

/* As struct.unpack("<IIQqII", …) reads it; two texts or a text and bytes follow. */
struct record {
    uint32_t kind, mode;
    uint64_t inode;
    int64_t number; /* an offset or a size */
    uint32_t first, second;
};

static const char *folder;
static int record_fd = -1, lock_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_writev = dlsym(RTLD_NEXT, "writev");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    const char *record = getenv("RECORDER_LOG"), *lock = getenv("RECORDER_LOCK");
    if (!record || !lock) return;
    record_fd = real_open(record, O_WRONLY | O_APPEND | O_CLOEXEC);
    lock_fd = real_open(lock, O_RDWR | O_CLOEXEC);
    if (record_fd < 0 || lock_fd < 0) {
        fprintf(stderr, "recorder: cannot open %s or %s\n", record, lock);
        abort();
    }
    folder = getenv("RECORDER_FOLDER");
}

static void enter(void) {
    pthread_mutex_lock(&mutex);
    while (flock(lock_fd, LOCK_EX) != 0 && errno == EINTR) {}
}

static void leave(void) {
    int error = errno;
    flock(lock_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

static void note(enum kind kind, uint32_t mode, uint64_t inode, int64_t number, const void *first, size_t first_length, const void *second,
                 size_t second_length) {
    int error = errno;
    struct record head = {kind, mode, inode, number, (uint32_t)first_length, (uint32_t)second_length};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)first, first_length}, {(void *)second, second_length}};
    size_t all = sizeof head + first_length + second_length;
    if (real_writev(record_fd, parts, 3) != (ssize_t)all) {
        fprintf(stderr, "recorder: the record cannot be written\n");
        abort();
    }
    errno = error;
}

/* The absolute path of `path` below `at`; says whether that is in the folder. */
static int resolve(int at, const char *path, char whole[4096]) {
    if (!folder) return 0;
    if (path[0] == '/') {
        snprintf(whole, 4096, "%s", path);
    } else {
        char link[32], above[2048];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = at == AT_FDCWD ? (getcwd(above, sizeof above) ? (ssize_t)strlen(above) : -1) : readlink(link, above, sizeof above - 1);
        if (length < 0) return 0;
        above[length] = 0;
        snprintf(whole, 4096, "%s/%s", above, path);
    }
    size_t length = strlen(folder);
    return strncmp(whole, folder, length) == 0 && (whole[length] == '/' || whole[length] == 0);
}

static int is_ours(int fd, struct stat *found) {
    if (!folder || fstat(fd, found) != 0 || !(S_ISREG(found->st_mode) || S_ISDIR(found->st_mode))) return 0;
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    size_t prefix = strlen(folder);
    return strncmp(path, folder, prefix) == 0 && (path[prefix] == '/' || path[prefix] == 0);
}

static uint64_t inode_of(const char *path) {
    struct stat found;
    return lstat(path, &found) == 0 ? found.st_ino : 0;
}

/* --- content --- */

ssize_t write(int fd, const void *bytes, size_t count) {
    struct stat found;
    if (!is_ours(fd, &found)) return real_write(fd, bytes, count);
    enter();
    ssize_t done = real_write(fd, bytes, count);
    if (done > 0) note(WRITE, 0, found.st_ino, lseek(fd, 0, SEEK_CUR) - done, bytes, done, NULL, 0);
    leave();
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat found;
    if (!is_ours(fd, &found)) return real_writev(fd, parts, count);
    /* Part by part: the caller goes on after what was written. */
    for (int k = 0; k < count; k++)
        if (parts[k].iov_len) return write(fd, parts[k].iov_base, parts[k].iov_len);
    return 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    REAL(pwrite);
    struct stat found;
    if (!is_ours(fd, &found)) return real(fd, bytes, count, at);
    enter();
    ssize_t done = real(fd, bytes, count, at);
    if (done > 0) note(WRITE, 0, found.st_ino, at, bytes, done, NULL, 0);
    leave();
    return done;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { return pwrite(fd, bytes, count, at); }

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    struct stat found;
    if (!is_ours(fd, &found)) return real(fd, length);
    enter();
    int done = real(fd, length);
    if (done == 0) note(RESIZE, 0, found.st_ino, length, NULL, 0, NULL, 0);
    leave();
    return done;
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

/* What copies inside the kernel is refused: callers then read and write. */
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t count, unsigned flags) {
    REAL(copy_file_range);
    struct stat found;
    if (is_ours(out, &found)) {
        errno = ENOSYS;
        return -1;
    }
    return real(in, in_at, out, out_at, count, flags);
}

#define REFUSE_SENDFILE(name, offset) \
    ssize_t name(int out, int in, offset *at, size_t count) { \
        static ssize_t (*real)(int, int, offset *, size_t); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        struct stat found; \
        if (is_ours(out, &found)) { \
            errno = ENOSYS; \
            return -1; \
        } \
        return real(out, in, at, count); \
    }
REFUSE_SENDFILE(sendfile, off_t)
REFUSE_SENDFILE(sendfile64, off64_t)

int fallocate(int fd, int mode, off_t at, off_t length) {
    REAL(fallocate);
    struct stat found;
    if (is_ours(fd, &found)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return real(fd, mode, at, length);
}
int fallocate64(int fd, int mode, off64_t at, off64_t length) { return fallocate(fd, mode, at, length); }

#define SYNC_CALL(name) \
    int name(int fd) { \
        REAL(name); \
        struct stat found; \
        if (!is_ours(fd, &found)) return real(fd); \
        enter(); \
        int done = real(fd); \
        if (done == 0) note(SYNC, 0, found.st_ino, 0, NULL, 0, NULL, 0); \
        leave(); \
        return done; \
    }
SYNC_CALL(fsync)
SYNC_CALL(fdatasync)

/* --- names --- */

#define OPEN(name, declaration, call, at) \
    int name declaration { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        char whole[4096]; \
        if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(at, path, whole)) return call; \
        enter(); \
        uint64_t before = inode_of(whole); \
        int fd = call; \
        struct stat found; \
        if (fd >= 0 && fstat(fd, &found) == 0) { \
            if (!before) note(CREATE, found.st_mode & 0777, found.st_ino, 0, whole, strlen(whole), NULL, 0); \
            else if (flags & O_TRUNC) note(RESIZE, 0, found.st_ino, 0, NULL, 0, NULL, 0); \
        } \
        leave(); \
        return fd; \
    }

OPEN(open, (const char *path, int flags, ...), real(path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), real(path, flags, mode), AT_FDCWD)
OPEN(openat, (int dirfd, const char *path, int flags, ...), real(dirfd, path, flags, mode), dirfd)
OPEN(openat64, (int dirfd, const char *path, int flags, ...), real(dirfd, path, flags, mode), dirfd)

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    REAL(renameat2);
    char a[4096], b[4096];
    if (!resolve(from_at, from, a) || !resolve(to_at, to, b)) return real(from_at, from, to_at, to, flags);
    enter();
    uint64_t inode = inode_of(a);
    int done = real(from_at, from, to_at, to, flags);
    if (done == 0) note(RENAME, 0, inode, 0, a, strlen(a), b, strlen(b));
    leave();
    return done;
}
int renameat(int from_at, const char *from, int to_at, const char *to) { return renameat2(from_at, from, to_at, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    REAL(linkat);
    char b[4096];
    if (!resolve(to_at, to, b)) return real(from_at, from, to_at, to, flags);
    enter();
    int done = real(from_at, from, to_at, to, flags);
    if (done == 0) note(LINK, 0, inode_of(b), 0, b, strlen(b), NULL, 0);
    leave();
    return done;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    char whole[4096];
    if (!resolve(at, path, whole)) return real(at, path, flags);
    enter();
    uint64_t inode = inode_of(whole);
    int done = real(at, path, flags);
    if (done == 0) note(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, inode, 0, whole, strlen(whole), NULL, 0);
    leave();
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    REAL(mkdirat);
    char whole[4096];
    if (!resolve(at, path, whole)) return real(at, path, mode);
    enter();
    int done = real(at, path, mode);
    if (done == 0) note(MKDIR, mode, inode_of(whole), 0, whole, strlen(whole), NULL, 0);
    leave();
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* --- the end --- */

int kill(pid_t pid, int signal) {
    REAL(kill);
    /* A program that kills itself must not leave a thread between a call and its note. The lock ends with it. */
    if (folder && pid == getpid() && signal == SIGKILL) enter();
    return real(pid, signal);
}
