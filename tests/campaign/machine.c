/* A machine that misbehaves, for one program: loaded into it with LD_PRELOAD (see machine.py, which changes the settings while
 * the program runs). Calls that touch files below CAMPAIGN_FOLDER fail or wait as the settings say; the time of the day jumps,
 * and with it the times of files that are written after the jump; the identity of the system's run is that of a file.
 * What programs that ours starts do is not touched: they get an environment of their own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define JUMPS 4000

/* As struct.pack("<6I", …) and pairs of <2q write it. */
struct settings {
    volatile uint32_t write_errno, write_one_in; /* calls that change a file: the error, and that one call in so many has it */
    volatile uint32_t read_errno, read_one_in;
    volatile uint32_t delay_ms; /* how long each of these calls takes at least */
    volatile uint32_t jumps;    /* how many of the following count */
    struct {
        volatile int64_t at, offset; /* nanoseconds: since the real time `at` the clock is off by `offset` */
    } jump[JUMPS];
};

static struct settings none;
static struct settings *settings = &none;
static const char *folder;
static const char *boot_id;

__attribute__((constructor)) static void start(void) {
    folder = getenv("CAMPAIGN_FOLDER");
    boot_id = getenv("CAMPAIGN_BOOT_ID");
    const char *path = getenv("CAMPAIGN_MACHINE");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = path ? real_open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *map = mmap(NULL, sizeof *settings, PROT_READ, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) settings = map;
        close(fd);
    }
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static uint32_t draw(void) {
    static _Thread_local uint64_t state;
    if (!state) state = (uintptr_t)&state ^ ((uint64_t)getpid() << 32) ^ (uint64_t)clock();
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int below_folder(const char *path) {
    size_t length = folder ? strlen(folder) : 0;
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int file_is_ours(int fd) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below_folder(path);
}

static int name_is_ours(int at, const char *path) {
    if (path[0] == '/') return below_folder(path);
    return at == AT_FDCWD ? 0 : file_is_ours(at);
}

static void wait_as_set(void) {
    uint32_t delay = settings->delay_ms;
    if (delay) usleep(delay * 1000);
}

static int busy(void) { return settings->write_errno || settings->read_errno || settings->delay_ms; }

/* The error that this change of a file has, or 0. */
static int refused(int ours) {
    if (!ours) return 0;
    wait_as_set();
    uint32_t error = settings->write_errno, one_in = settings->write_one_in;
    return error && (one_in <= 1 || draw() % one_in == 0) ? (int)error : 0;
}

static int unreadable(int ours) {
    if (!ours) return 0;
    wait_as_set();
    uint32_t error = settings->read_errno, one_in = settings->read_one_in;
    return error && (one_in <= 1 || draw() % one_in == 0) ? (int)error : 0;
}

#define REFUSE(ours, failure) \
    do { \
        int error = busy() ? refused(ours) : 0; \
        if (error) { \
            errno = error; \
            return failure; \
        } \
    } while (0)

/* --- what changes files --- */

/* A disk that becomes full takes the first part of what is written. */
static size_t first_part(size_t count) { return count > 1 && settings->write_errno == ENOSPC && draw() % 2 ? count / 2 : 0; }

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    int error = busy() ? refused(file_is_ours(fd)) : 0;
    if (!error) return real(fd, bytes, count);
    size_t part = first_part(count);
    if (part) return real(fd, bytes, part);
    errno = error;
    return -1;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    REFUSE(file_is_ours(fd), -1);
    return real(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    REAL(pwrite);
    int error = busy() ? refused(file_is_ours(fd)) : 0;
    if (!error) return real(fd, bytes, count, at);
    size_t part = first_part(count);
    if (part) return real(fd, bytes, part, at);
    errno = error;
    return -1;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { return pwrite(fd, bytes, count, at); }

int ftruncate(int fd, off_t length) {
    REAL(ftruncate);
    REFUSE(file_is_ours(fd), -1);
    return real(fd, length);
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

int fsync(int fd) {
    REAL(fsync);
    REFUSE(file_is_ours(fd), -1);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    REFUSE(file_is_ours(fd), -1);
    return real(fd);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    REFUSE(name_is_ours(AT_FDCWD, to), -1);
    return real(from, to);
}

int link(const char *from, const char *to) {
    REAL(link);
    REFUSE(name_is_ours(AT_FDCWD, to), -1);
    return real(from, to);
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    REAL(linkat);
    REFUSE(name_is_ours(to_at, to), -1);
    return real(from_at, from, to_at, to, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    REFUSE(name_is_ours(AT_FDCWD, path), -1);
    return real(path, mode);
}

/* Names can be removed from a full disk. */
#define REFUSE_REMOVAL(ours) \
    do { \
        if (settings->write_errno != ENOSPC) REFUSE(ours, -1); \
    } while (0)

int unlink(const char *path) {
    REAL(unlink);
    REFUSE_REMOVAL(name_is_ours(AT_FDCWD, path));
    return real(path);
}

int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat);
    REFUSE_REMOVAL(name_is_ours(at, path));
    return real(at, path, flags);
}

int rmdir(const char *path) {
    REAL(rmdir);
    REFUSE_REMOVAL(name_is_ours(AT_FDCWD, path));
    return real(path);
}

/* --- what opens and reads them --- */

static const char *place(const char *path) {
    return boot_id && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? boot_id : path;
}

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
        path = place(path); \
        if (busy() && name_is_ours(at, path)) { \
            int error = flags & O_CREAT && access(path, F_OK) != 0 ? refused(1) : unreadable(1); \
            if (error) { \
                errno = error; \
                return -1; \
            } \
        } \
        return call; \
    }

OPEN(open, (const char *path, int flags, ...), real(path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), real(path, flags, mode), AT_FDCWD)
OPEN(openat, (int dirfd, const char *path, int flags, ...), real(dirfd, path, flags, mode), dirfd)
OPEN(openat64, (int dirfd, const char *path, int flags, ...), real(dirfd, path, flags, mode), dirfd)

#define UNREADABLE(fd) \
    do { \
        int error = busy() ? unreadable(file_is_ours(fd)) : 0; \
        if (error) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

ssize_t read(int fd, void *bytes, size_t count) {
    REAL(read);
    UNREADABLE(fd);
    return real(fd, bytes, count);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
    REAL(pread);
    UNREADABLE(fd);
    return real(fd, bytes, count, at);
}
ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) { return pread(fd, bytes, count, at); }

/* --- the time of the day --- */

static const int64_t SECOND = 1000000000;

/* By how much the clock was off at a real time. */
static int64_t offset_at(int64_t real) {
    uint32_t count = settings->jumps;
    for (uint32_t k = count < JUMPS ? count : JUMPS; k > 0; k--)
        if (settings->jump[k - 1].at <= real) return settings->jump[k - 1].offset;
    return 0;
}

static void shift(int64_t *seconds, int64_t *nanoseconds) {
    if (!settings->jumps) return;
    int64_t real = *seconds * SECOND + *nanoseconds, shown = real + offset_at(real);
    *seconds = shown / SECOND;
    *nanoseconds = shown % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(clock_gettime);
    int done = real(clock, time);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t seconds = time->tv_sec, nanoseconds = time->tv_nsec;
        shift(&seconds, &nanoseconds);
        time->tv_sec = seconds;
        time->tv_nsec = nanoseconds;
    }
    return done;
}

int gettimeofday(struct timeval *time, void *zone) {
    (void)zone;
    struct timespec now;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return done;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

static void shift_file_time(struct statx_timestamp *time) {
    int64_t seconds = time->tv_sec, nanoseconds = time->tv_nsec;
    shift(&seconds, &nanoseconds);
    time->tv_sec = seconds;
    time->tv_nsec = (uint32_t)nanoseconds;
}

int statx(int at, const char *path, int flags, unsigned mask, struct statx *found) {
    REAL(statx);
    int done = real(at, path, flags, mask, found);
    if (done == 0) {
        shift_file_time(&found->stx_mtime);
        shift_file_time(&found->stx_ctime);
        shift_file_time(&found->stx_btime);
    }
    return done;
}
