// libreconstruct: a video goes in; camera poses, a 3D Gaussian scene (.ply, .spz) and a preview come out.
// -------------------------------------------------------------------------------------------------------
//
//     #include <reconstruct.h>
//
//     rc_error *error = NULL;
//     char *report = NULL;
//     if (rc_reconstruct("garden.mp4", "garden", NULL, NULL, NULL, NULL, &report, &error) != RC_OK) {
//         fprintf(stderr, "%s\n", rc_error_message(error));
//         rc_error_free(error);
//     }
//     rc_string_free(report);
//
// There are two ways to use it. rc_reconstruct() makes a scene of one video, now, in a folder of the caller's. An
// rc_engine keeps many videos, jobs and scenes of many users in a folder of its own, with a queue and workers; it is
// what the server and the other faces of libreconstruct are made of. rc_scene and rc_renderer read, write and show
// scenes, wherever they come from. rc_extract_frames() and rc_sfm() are the stages before the training by themselves, and
// rc_model holds camera poses. C++ programs include <reconstruct.hpp>, which wraps all of this.
//
// Names. A function is named by the type it belongs to and a verb: rc_job_cancel(). Types and functions begin with rc_,
// constants with RC_.
//
// Ownership. What a function stores through a pointer to a pointer belongs to the caller, who frees it once: handles
// with the rc_..._free() of their type, strings with rc_string_free(), errors with rc_error_free(). What a function
// returns as a const pointer belongs to the handle it came from and lives as long as that. What is passed in stays the
// caller's and is not looked at after the function has returned. To free NULL does nothing. Handles may be freed in any
// order.
//
// Errors. A function that can fail returns an rc_code and takes an rc_error ** last, which may be NULL. Outputs are
// written only if the function returns RC_OK, the error only if it does not. Pointers must not be NULL unless their
// function says so; NULL is refused with RC_NULL_ARGUMENT, text that is not UTF-8 with RC_INVALID_UTF8, a handle of
// another type with RC_INVALID_HANDLE. Functions that cannot fail return 0, false or NULL for NULL. No exception or
// panic leaves a function.
//
// Text is UTF-8 and ends in NUL, paths included.
//
// Threads. Every function may be called from every thread, and on one handle by several threads at once, unless its
// comment says otherwise; only the functions that free a handle must be the last to use it. Callbacks come on the
// thread that made the call, except that of rc_set_log(). Functions that can take long say that they block. After
// fork() only the process that opened a handle may use it.
//
// Structures that the caller fills begin with struct_size, so that a library that knows more fields than the program,
// or fewer, understands it. They are started from the macro of their type that ends in _INIT:
//
//     rc_request request = RC_REQUEST_INIT;
//     request.title = "Garden";

#ifndef RECONSTRUCT_H
#define RECONSTRUCT_H

// Made from ffi/src by ffi/tests/header.rs. Changes belong there.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Handles
// -------
//
// Opaque: made, used and freed by functions.

// Why a call, or a job, failed. Never changes.
typedef struct rc_error rc_error;

// The service on a folder, for one user.
typedef struct rc_engine rc_engine;

// A video that is being sent piece by piece.
typedef struct rc_upload rc_upload;

// A job of an engine's user.
typedef struct rc_job rc_job;

// Jobs, newest first, as they were when the list was made. Never changes.
typedef struct rc_job_list rc_job_list;

// A file that a job has made.
typedef struct rc_artifact rc_artifact;

// A flag that stops long calls. Once raised it stays so.
typedef struct rc_cancel rc_cancel;

// Cameras, images with poses, and points.
typedef struct rc_model rc_model;

// A Gaussian scene.
typedef struct rc_scene rc_scene;

// A scene on a device, ready to be shown.
typedef struct rc_renderer rc_renderer;

// Versions
// --------
//
// A header and a library fit together if their ABI versions are equal. Within one ABI version functions, codes and
// fields at the end of structures are only added, so a program that was built with an older header goes on working.

// Number of the binary interface that this header describes; compare it with rc_abi_version().
#define RC_ABI_VERSION 1

// First part of the version of the library that this header came with.
#define RC_VERSION_MAJOR 0

// Second part of the version.
#define RC_VERSION_MINOR 1

// Third part of the version.
#define RC_VERSION_PATCH 0

// Number of the binary interface of the library that is loaded. A program that may meet another library than the one
// it was built for compares it with RC_ABI_VERSION before anything else.
//
// Thread-safe.
uint32_t rc_abi_version(void);

// Version of the library that is loaded, for example "0.1.0". Static: never freed.
//
// Thread-safe.
const char *rc_version(void);

// Errors
// ------
//
// Every function that can fail returns an rc_code and takes, as its last argument, the address of an `rc_error *`. If
// the function fails it stores an error there, which the caller frees with rc_error_free(); if it succeeds it does not
// touch it. NULL instead of an address means that the code is enough.
//
//     rc_error *error = NULL;
//     if (rc_engine_open("scenes", NULL, &engine, &error) != RC_OK) {
//         fprintf(stderr, "%s\n", rc_error_message(error));
//         if (rc_error_hint(error)) fprintf(stderr, "%s\n", rc_error_hint(error));
//         rc_error_free(error);
//     }

// What came of a call. Numbers are never given to another meaning.
typedef enum rc_code {
    // Done. All outputs are written.
    RC_OK = 0,
    // An option or argument is out of its range or contradicts another one.
    RC_INVALID_ARGUMENT = 1,
    // Something that this version cannot do.
    RC_UNSUPPORTED = 2,
    // What was named does not exist, or belongs to another user.
    RC_NOT_FOUND = 3,
    // The input is no video or image that can be read, or breaks a limit.
    RC_INVALID_MEDIA = 4,
    // A scene, model or checkpoint file is damaged or of an unknown format.
    RC_INVALID_FILE = 5,
    // The program ffmpeg or ffprobe is missing or too old.
    RC_FFMPEG_MISSING = 6,
    // Too few usable frames to reconstruct anything.
    RC_TOO_FEW_FRAMES = 7,
    // The pictures show too little texture.
    RC_INSUFFICIENT_FEATURES = 8,
    // The camera only turned or stood still: depth cannot be seen.
    RC_INSUFFICIENT_PARALLAX = 9,
    // Only part of the frames could be placed.
    RC_PARTIAL_RECONSTRUCTION = 10,
    // The focal length or distortion that came out is not plausible.
    RC_INTRINSICS_UNRELIABLE = 11,
    // The geometry that came out contradicts itself.
    RC_UNRELIABLE_RECONSTRUCTION = 12,
    // A graphics processor was asked for and there is none that can be used.
    RC_NO_GPU = 13,
    // The graphics device was lost or ran out of memory.
    RC_GPU = 14,
    // The disk or quota is full.
    RC_DISK_FULL = 15,
    // Another failure of input or output.
    RC_IO = 16,
    // The API key is missing, unknown, malformed or revoked.
    RC_UNAUTHENTICATED = 17,
    // The API key is genuine, but its owner may not do this.
    RC_PERMISSION_DENIED = 18,
    // It contradicts the state of the thing, for example to cancel a job that is finished.
    RC_CONFLICT = 19,
    // An idempotency key was used before with another request.
    RC_IDEMPOTENCY_MISMATCH = 20,
    // The user has too many waiting jobs.
    RC_TOO_MANY_REQUESTS = 21,
    // More bytes than are accepted.
    RC_TOO_LARGE = 22,
    // The caller cancelled the work.
    RC_CANCELLED = 23,
    // It took longer than it was allowed to.
    RC_DEADLINE_EXCEEDED = 24,
    // A fault of the library.
    RC_INTERNAL = 25,
    // A pointer that must not be NULL is NULL.
    RC_NULL_ARGUMENT = 100,
    // A string is not UTF-8.
    RC_INVALID_UTF8 = 101,
    // A handle is of another type than the function takes.
    RC_INVALID_HANDLE = 102,
    // A fault of the library that it could not handle. The handles of the call should be freed and not used again.
    RC_PANIC = 103,
} rc_code;

// The stages of a reconstruction, in their order.
typedef enum rc_stage {
    // None.
    RC_STAGE_NONE = 0,
    // Key frames are chosen.
    RC_STAGE_FRAMES = 1,
    // Cameras are placed (structure from motion).
    RC_STAGE_SFM = 2,
    // Gaussians are fitted to the frames.
    RC_STAGE_TRAIN = 3,
    // Scene files and pictures are written.
    RC_STAGE_EXPORT = 4,
} rc_stage;

// Name of a code, for example "RC_NOT_FOUND"; "unknown code" for a number that is none. Static: never freed.
//
// Thread-safe.
const char *rc_code_name(rc_code code);

// The code; RC_OK for NULL.
//
// Thread-safe.
rc_code rc_error_code(const rc_error *error);

// Stable name of the kind of error as all faces of the library use it, for example "insufficient_parallax"; "" for
// NULL. Lives as long as the error.
//
// Thread-safe.
const char *rc_error_slug(const rc_error *error);

// What was wrong, with which value; "" for NULL. Lives as long as the error.
//
// Thread-safe.
const char *rc_error_message(const rc_error *error);

// What can be done about it; NULL if there is nothing to say. Lives as long as the error.
//
// Thread-safe.
const char *rc_error_hint(const rc_error *error);

// Everything in one line, with the causes: for logs. "" for NULL. Lives as long as the error.
//
// Thread-safe.
const char *rc_error_debug(const rc_error *error);

// The stage of a reconstruction in which it happened; RC_STAGE_NONE if in none, and for NULL.
//
// Thread-safe.
rc_stage rc_error_stage(const rc_error *error);

// Whether the same call may succeed later without any change to its input; false for NULL.
//
// Thread-safe.
bool rc_error_is_retryable(const rc_error *error);

// Frees an error. NULL is allowed.
//
// Thread-safe, while nobody uses the error.
void rc_error_free(rc_error *error);

// Strings that the library returns
// --------------------------------
//
// Text of what never changes (errors, lists, artifacts, the id of a job) is returned as `const char *` and belongs to
// its handle. Text of what may change is returned through a `char **` as a copy that the caller frees.

// Frees a string that a function of this library returned through a `char **`. NULL is allowed.
//
// Thread-safe.
void rc_string_free(char *string);

// The engine
// ----------
//
// An engine is the whole service on one folder: users, videos, jobs and their results, all of which survive the program
// and its crashes. Any number of engines, programs and servers of one machine may use the same folder at once. An
// engine acts for one user and sees that user's jobs only; jobs are done by workers (below), in this program or in
// another one.
//
// Where many machines share a service, its rows are in a database and its files in a storage, whose addresses are given
// as options; the folder is then this machine's own place for its work.
//
// Whoever opens the folder is its operator: rc_engine_for_user() makes an engine for any user without asking for a key.
// A program that serves others makes theirs with rc_engine_for_key().

// What a user may do.
typedef enum rc_tier {
    // Where a tier may be left out: enterprise.
    RC_TIER_DEFAULT = 0,
    // Nothing through an API key.
    RC_TIER_FREE = 1,
    // Everything.
    RC_TIER_ENTERPRISE = 2,
} rc_tier;

// How an engine is opened. Start from RC_ENGINE_OPTIONS_INIT.
typedef struct rc_engine_options {
    // sizeof(rc_engine_options)
    size_t struct_size;
    // Name of the user to act for, who is added if there is none; NULL = "local".
    const char *user;
    // Tier of the user, if added.
    rc_tier tier;
    // How many workers to start in this program, at most 256; 0 = none.
    uint32_t workers;
    // Settings of the service as a JSON object; NULL = the defaults. For example
    // {"reconstruction": {"device": "cpu", "max_frames": 100}, "limits": {"max_queued_jobs": 10}}.
    const char *settings_json;
    // Where the rows are if many machines share them, for example
    // "postgres://user:password@db.example.org/reconstruct?sslmode=require"; NULL = in the folder. Given together with
    // storage.
    const char *database;
    // Where videos and scenes are if many machines share them, for example "file:///mnt/scenes", a folder that all of
    // them see; NULL = in the folder. Given together with database.
    const char *storage;
    // File with what makes keys genuine, the same on all machines; NULL = secrets.json in the folder, which is made if it
    // is not there, but must be there if other machines share the rows.
    const char *secrets;
} rc_engine_options;

#define RC_ENGINE_OPTIONS_INIT { sizeof(rc_engine_options), NULL, RC_TIER_DEFAULT, 0, NULL, NULL, NULL, NULL }

// Opens the engine on a folder, which is made (for its owner only) if it is not there, and stores it in *engine. What
// an earlier program left undone is taken up.
//
// options: NULL = the defaults.
//
// Fails with RC_INVALID_ARGUMENT for settings out of range and addresses that are none, RC_INVALID_FILE for a folder or
// a database that is damaged or of a newer version, RC_NOT_FOUND if there are no secrets beside an address,
// RC_CONFLICT while another machine uses the folder, RC_UNSUPPORTED for an address that this build cannot open, RC_IO
// (also if the database cannot be reached), RC_DISK_FULL.
//
// Thread-safe.
rc_code rc_engine_open(const char *folder,
                       const rc_engine_options *options,
                       rc_engine **engine,
                       rc_error **error);

// Frees an engine. Workers that were started on it stop first, each with a checkpoint of its job, which takes seconds.
// Jobs, artifacts and uploads that came from it stay usable. NULL is allowed.
//
// Thread-safe, while nobody uses the engine.
void rc_engine_free(rc_engine *engine);

// The folder, absolute; NULL for NULL. Lives as long as the engine.
//
// Thread-safe.
const char *rc_engine_folder(const rc_engine *engine);

// Stores in *other an engine on the same folder that acts for the user of this name, who is added with this tier if
// there is none. The operator's way: nobody is asked for a key.
//
// Fails with RC_INVALID_ARGUMENT for a name that is empty, too long or has control characters.
//
// Thread-safe.
rc_code rc_engine_for_user(const rc_engine *engine,
                           const char *name,
                           rc_tier tier,
                           rc_engine **other,
                           rc_error **error);

// Stores in *other an engine on the same folder that acts for the owner of an API key. The key is looked at in this call alone:
// call this again for each request, since a key may be revoked and its owner's tier changed.
//
// Fails with RC_UNAUTHENTICATED for a key that is not genuine, RC_PERMISSION_DENIED for an owner of the free tier.
//
// Thread-safe.
rc_code rc_engine_for_key(const rc_engine *engine,
                          const char *api_key,
                          rc_engine **other,
                          rc_error **error);

// Changes what a user may do, from the next request on.
//
// Fails with RC_NOT_FOUND if there is no user of this name.
//
// Thread-safe.
rc_code rc_engine_set_tier(const rc_engine *engine, const char *name, rc_tier tier, rc_error **error);

// Stores in *json the users of the folder, by name: [{"user_id", "name", "tier", "created_at"}]. Free it with
// rc_string_free().
//
// Thread-safe.
rc_code rc_engine_users_json(const rc_engine *engine, char **json, rc_error **error);

// API keys
// --------
//
// With a key its owner reaches the REST interface of a server on the same folder, and rc_engine_for_key() tells whose
// it is.

// Makes an API key for the engine's user and stores it in *secret: it is shown now and never again. Free it with
// rc_string_free().
//
// Fails with RC_INVALID_ARGUMENT for a name that is empty, too long or has control characters, with RC_PERMISSION_DENIED
// for a user who is not of the Enterprise tier.
//
// Thread-safe.
rc_code rc_engine_create_key(const rc_engine *engine,
                             const char *name,
                             char **secret,
                             rc_error **error);

// Stores in *json the keys of the engine's user, oldest first, without their secrets:
// [{"name", "prefix", "created_at", "last_used", "revoked_at"}]. Free it with rc_string_free().
//
// Thread-safe.
rc_code rc_engine_keys_json(const rc_engine *engine, char **json, rc_error **error);

// Makes a key of the engine's user useless, at once and for ever. It is named by its prefix: what is before its dot.
//
// Fails with RC_NOT_FOUND if the user has no such key.
//
// Thread-safe.
rc_code rc_engine_revoke_key(const rc_engine *engine, const char *prefix, rc_error **error);

// Videos
// ------
//
// A video is copied into the folder before a job can use it: from a file, or piece by piece from memory. It gets a
// name, "videos/<uuid>.<extension>"; one that no job uses is removed after a day.

// Copies a video file into the folder and stores its name in *blob_name; free that with rc_string_free(). mp4, mov, m4v,
// mkv, webm and avi are accepted, and zip for pictures.
//
// Fails with RC_NOT_FOUND, RC_INVALID_ARGUMENT for another kind of file, RC_TOO_LARGE, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_engine_import_video(const rc_engine *engine,
                               const char *file,
                               char **blob_name,
                               rc_error **error);

// Removes a video that no job uses and that is not wanted any more, for example one that could not be submitted.
// Else it stays for a day.
//
// Fails with RC_NOT_FOUND if the user has no such video, RC_INVALID_ARGUMENT for what is no name of one, RC_CONFLICT
// if a job uses it.
//
// Thread-safe.
rc_code rc_engine_discard_upload(const rc_engine *engine, const char *blob_name, rc_error **error);

// Begins to take a video from memory and stores the upload in *upload; free it with rc_upload_free(). Its file name, for
// example "garden.mp4", says what kind of video it is and becomes the title of a job that has none.
//
// Fails with RC_INVALID_ARGUMENT for another kind of file, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_engine_begin_upload(const rc_engine *engine,
                               const char *file_name,
                               rc_upload **upload,
                               rc_error **error);

// Takes the next `size` bytes of the video.
//
// Fails with RC_TOO_LARGE, RC_DISK_FULL, RC_IO, after which the upload can only be freed, and with RC_CONFLICT after
// that.
//
// Thread-safe; but then the order of the pieces is that of chance.
rc_code rc_upload_append(const rc_upload *upload, const void *data, size_t size, rc_error **error);

// Ends the transfer: the video is on the disk when this returns. Stores its name in *blob_name; free that with
// rc_string_free(). The upload is still to be freed.
//
// Fails with RC_CONFLICT if it is finished already, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_upload_finish(const rc_upload *upload, char **blob_name, rc_error **error);

// Frees an upload. One that was not finished leaves nothing behind. NULL is allowed.
//
// Thread-safe, while nobody uses the upload.
void rc_upload_free(rc_upload *upload);

// Submitting jobs
// ---------------
//
// A job makes a scene of a video. What it is asked for is written either in a structure, for C and C++, or as the JSON of
// the REST interface, for languages in which that is easier; both mean the same and are held to the same limits.

// How camera poses are found.
typedef enum rc_method {
    // RC_METHOD_GLOMAP.
    RC_METHOD_DEFAULT = 0,
    // Global structure from motion, and incremental where that finds no sound model.
    RC_METHOD_GLOMAP = 1,
    // Incremental structure from motion.
    RC_METHOD_COLMAP = 2,
} rc_method;

// How a viewer moves.
typedef enum rc_camera_type {
    // In a request RC_CAMERA_DRONE, in a change as before.
    RC_CAMERA_DEFAULT = 0,
    // Around the point it looks at.
    RC_CAMERA_ORBITAL = 1,
    // Freely.
    RC_CAMERA_DRONE = 2,
} rc_camera_type;

// What a job is asked for. Start from RC_REQUEST_INIT.
typedef struct rc_request {
    // sizeof(rc_request)
    size_t struct_size;
    // Title, 1 to 255 characters; NULL = the file name of the video.
    const char *title;
    // Whether others may see it.
    bool is_public;
    // Whether to remove the background.
    bool remove_background;
    // How camera poses are found.
    rc_method reconstruction_method;
    // How a viewer moves.
    rc_camera_type camera_type;
    // Largest number of Gaussians, 1000 to 10,000,000; 0 = 1,000,000, or limits.max_gaussians if that is less.
    uint32_t training_max_num_gaussians;
    // Number of training steps, 1 to 200,000; 0 = 25,000, or limits.max_steps if that is less.
    uint32_t training_num_steps;
    // Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    // 1000: the scene is then in metres. 0 = there are none.
    double apriltag_size_mm;
    // A key of the caller's, 1 to 255 bytes: if a job was submitted with it in the last day, that one is the answer and
    // no other is added. The request must be the same, its blob_name included: a file that is imported again has another.
    // NULL = none.
    const char *idempotency_key;
} rc_request;

#define RC_REQUEST_INIT { sizeof(rc_request), NULL, false, false, RC_METHOD_DEFAULT, RC_CAMERA_DEFAULT, 0, 0, 0.0, NULL }

// Submits a job for a video and stores it in *job; free that with rc_job_free(). When this returns the job is on the
// disk and stays in the queue until a worker has seen to it.
//
// blob_name: from rc_engine_import_video() or rc_upload_finish(). request: NULL = the defaults.
//
// Fails with RC_INVALID_ARGUMENT for a request out of range or a video that is not there or no video, RC_CONFLICT for a
// video that is being replaced, RC_TOO_MANY_REQUESTS, RC_IDEMPOTENCY_MISMATCH, RC_DISK_FULL.
//
// Thread-safe.
rc_code rc_engine_submit(const rc_engine *engine,
                         const char *blob_name,
                         const rc_request *request,
                         rc_job **job,
                         rc_error **error);

// Submits a job like rc_engine_submit(), with the JSON body of the REST interface: {"blob_name": "videos/...", "title":
// "Garden", "training_num_steps": 10000}. Fields that are not known are ignored; null counts as absent; one that is
// there twice is refused.
//
// idempotency_key: NULL = none.
//
// Thread-safe.
rc_code rc_engine_submit_json(const rc_engine *engine,
                              const char *request_json,
                              const char *idempotency_key,
                              rc_job **job,
                              rc_error **error);

// Makes a new job of the video of one that has ended, without another upload, and stores it in *again; free that with
// rc_job_free().
//
// request_json: what is to be other than before, like the body of rc_engine_submit_json() without the blob_name; NULL =
// nothing.
//
// Fails with RC_CONFLICT if the job has not ended, else as rc_engine_submit() does.
//
// Thread-safe.
rc_code rc_job_restart_json(const rc_job *job, const char *request_json, rc_job **again, rc_error **error);

// Jobs
// ----
//
// An rc_job names a job; it holds nothing of it. Every function asks what is true now, so an rc_job is never out of
// date, several may name one job, and all of them may be used by several threads at once. A job that was deleted is
// RC_NOT_FOUND from then on.

// What a job is doing.
typedef enum rc_job_status {
    // Not found: ended, because the storage no longer has the video. Only where many machines share it; also: not known.
    RC_JOB_UNKNOWN = 0,
    // Waiting for a worker.
    RC_JOB_QUEUED = 1,
    // Frames are chosen and cameras placed.
    RC_JOB_PROCESSING_VIDEO = 2,
    // The scene is trained and written.
    RC_JOB_GENERATING_SCENE = 3,
    // Done: the scene can be fetched. Never changes again.
    RC_JOB_FINISHED = 4,
    // Ended without a scene. Never changes again.
    RC_JOB_FAILED = 5,
} rc_job_status;

// What to do with a yes-or-no property.
typedef enum rc_choice {
    // Leave it as it is; in a query, do not ask for it.
    RC_ANY = 0,
    // No.
    RC_NO = 1,
    // Yes.
    RC_YES = 2,
} rc_choice;

// Where a viewer starts, in the frame of scene.ply: x right, y down, z forward, so that up is about (0, -1, 0).
typedef struct rc_camera {
    // Where the camera is, world units.
    double position[3];
    // The point it looks at.
    double look_at[3];
    // The direction that is up.
    double up[3];
    // How it moves.
    rc_camera_type camera_type;
} rc_camera;

// What is true about a job at one moment. Start from RC_JOB_INFO_INIT. Times are microseconds since 1970 (UTC).
typedef struct rc_job_info {
    // sizeof(rc_job_info)
    size_t struct_size;
    // What it is doing.
    rc_job_status status;
    // Place among all waiting jobs, from 1; 0 = it does not wait.
    uint32_t queue_position;
    // How far the scene is, 0 to 100, 100 only when it is finished; -1 = it is not begun.
    int32_t percent_complete;
    // The stage that runs.
    rc_stage stage;
    // How much of the stage is done, 0 to 1.
    float stage_fraction;
    // How often a worker has begun with it.
    uint32_t attempt;
    // Whether others may see it.
    bool is_public;
    // Whether the .ply can be fetched.
    bool has_ply;
    // Whether the .spz can be fetched.
    bool has_spz;
    // When it was submitted.
    int64_t uploaded_at;
    // When a worker began with it; 0 = not yet.
    int64_t started_at;
    // When it finished or failed; 0 = not yet.
    int64_t finished_at;
    // Counts the changes: another number, another state.
    uint64_t version;
    // Where a viewer starts.
    rc_camera camera;
} rc_job_info;

#define RC_JOB_INFO_INIT \
  { sizeof(rc_job_info), RC_JOB_UNKNOWN, 0, -1, RC_STAGE_NONE, 0.0f, 0, false, false, false, 0, 0, 0, 0, \
    { { 0.0, 0.0, 0.0 }, { 0.0, 0.0, 0.0 }, { 0.0, 0.0, 0.0 }, RC_CAMERA_DEFAULT } }

// A function that is told how a job comes along. Returns 0 to go on waiting, another number to stop waiting.
typedef int (*rc_job_fn)(void *user, const rc_job_info *info);

// Changes to a job. Start from RC_JOB_CHANGES_INIT, which changes nothing.
typedef struct rc_job_changes {
    // sizeof(rc_job_changes)
    size_t struct_size;
    // New title, 1 to 255 characters; NULL = as it is.
    const char *title;
    // Whether others may see it.
    rc_choice is_public;
    // Whether the camera goes back to what the reconstruction found; not together with `camera`.
    bool reset_camera;
    // New camera; NULL = as it is.
    const rc_camera *camera;
} rc_job_changes;

#define RC_JOB_CHANGES_INIT { sizeof(rc_job_changes), NULL, RC_ANY, false, NULL }

// Finds a job by its id and stores it in *job; free that with rc_job_free().
//
// Fails with RC_NOT_FOUND if the engine's user has no such job, and for text that is no id.
//
// Thread-safe.
rc_code rc_engine_job(const rc_engine *engine, const char *job_id, rc_job **job, rc_error **error);

// Frees a handle; the job itself stays. NULL is allowed.
//
// Thread-safe, while nobody uses the handle.
void rc_job_free(rc_job *job);

// The id, a UUID; NULL for NULL. Lives as long as the handle.
//
// Thread-safe.
const char *rc_job_id(const rc_job *job);

// Fills *info with what is true now.
//
// Thread-safe.
rc_code rc_job_get_info(const rc_job *job, rc_job_info *info, rc_error **error);

// Stores in *json the job as the REST interface shows it, with exactly its fields: job_id, title, status,
// percent_complete, uploaded_at, public, reconstruction_method, training_max_num_gaussians, training_num_steps,
// remove_background, has_ply, has_spz, camera_data. Free it with rc_string_free().
//
// Thread-safe.
rc_code rc_job_json(const rc_job *job, char **json, rc_error **error);

// Stores in *json what else is known of the job: owner, blob_name, apriltag_size_mm, stage, stage_fraction, attempt,
// warnings, failure, started_at, finished_at, updated_at, version. Free it with rc_string_free().
//
// Thread-safe.
rc_code rc_job_details_json(const rc_job *job, char **json, rc_error **error);

// Stores in *json what is told of the job beyond the fields of the REST interface (docs/rest.md, rule 80): job_id, status,
// version, progress, failure, warnings, requested, and once it is finished ran, quality, verdict, scale, costs. Free it with
// rc_string_free().
//
// Thread-safe.
rc_code rc_job_report_json(const rc_job *job,
                           char **json,
                           rc_error **error);

// Stores the title in *title; free it with rc_string_free().
//
// Thread-safe.
rc_code rc_job_title(const rc_job *job, char **title, rc_error **error);

// Stores in *failure why the job has failed, or NULL if it has not; free it with rc_error_free(). That of a job whose
// workers died over it has the slug "crashed", that of one whose files were lost on the server "files_lost"; both
// have the code RC_INTERNAL.
//
// Thread-safe.
rc_code rc_job_failure(const rc_job *job, rc_error **failure, rc_error **error);

// Waits until the job has finished or failed; neither is an error here. Every state that is seen on the way is told to
// on_change, the last one included, on this thread.
//
// timeout_seconds: negative = wait for ever. on_change: NULL = nobody is told.
//
// Fails with RC_DEADLINE_EXCEEDED if the job has not ended in time, RC_CANCELLED if on_change stopped the waiting (the
// job goes on), RC_NOT_FOUND also if it is deleted meanwhile.
//
// Thread-safe. Blocks.
rc_code rc_job_wait(const rc_job *job,
                    double timeout_seconds,
                    rc_job_fn on_change,
                    void *user,
                    rc_error **error);

// Changes a job. What the changes do not name stays, also what others change at the same time.
//
// Fails with RC_INVALID_ARGUMENT for a title or camera that cannot be.
//
// Thread-safe.
rc_code rc_job_update(const rc_job *job, const rc_job_changes *changes, rc_error **error);

// Changes a job like rc_job_update(), with the JSON body of the REST interface: {"title": "Garden", "public": true,
// "camera_data": {"position": {"x", "y", "z"}, "lookAt": .., "up": .., "cameraType": ..}}; "camera_data": null resets
// the camera.
//
// Thread-safe.
rc_code rc_job_update_json(const rc_job *job, const char *changes_json, rc_error **error);

// Stops a job for good: it has failed, with the slug "cancelled", when this returns.
//
// Fails with RC_CONFLICT if it has ended already; it stays as it is.
//
// Thread-safe.
rc_code rc_job_cancel(const rc_job *job, rc_error **error);

// Deletes a job with all its files, irreversibly; its video goes with the last job that uses it. The handle is still to be
// freed.
//
// Thread-safe.
rc_code rc_job_delete(const rc_job *job,
                      rc_error **error);

// Stores in *log what the worker has written about the job so far, "" if none has begun; free it with rc_string_free().
//
// Thread-safe.
rc_code rc_job_log(const rc_job *job, char **log, rc_error **error);

// Lists of jobs
// -------------

// Which jobs to list. Start from RC_LIST_QUERY_INIT, which asks for all.
typedef struct rc_list_query {
    // sizeof(rc_list_query)
    size_t struct_size;
    // At most this many, 1 to 1000; negative = all.
    int64_t limit;
    // Where an earlier list ended (rc_job_list_next()); NULL = from the newest on.
    const char *cursor;
    // Only those in this state: "Queued", "Processing video", "Generating 3D scene", "Finished", "Failed" or
    // "Not found"; NULL = all.
    const char *status;
    // Only those that are, or are not, public.
    rc_choice is_public;
} rc_list_query;

#define RC_LIST_QUERY_INIT { sizeof(rc_list_query), -1, NULL, NULL, RC_ANY }

// Lists the jobs of the engine's user and stores the list in *list; free it with rc_job_list_free().
//
// query: NULL = all.
//
// Fails with RC_INVALID_ARGUMENT for a limit out of range or a cursor or state that is none.
//
// Thread-safe.
rc_code rc_engine_jobs(const rc_engine *engine,
                       const rc_list_query *query,
                       rc_job_list **list,
                       rc_error **error);

// How many jobs are in the list; 0 for NULL.
//
// Thread-safe.
size_t rc_job_list_count(const rc_job_list *list);

// The id of a job, by its place from 0; NULL beyond the end. Lives as long as the list.
//
// Thread-safe.
const char *rc_job_list_id(const rc_job_list *list, size_t index);

// The title of a job, by its place from 0; NULL beyond the end. Lives as long as the list.
//
// Thread-safe.
const char *rc_job_list_title(const rc_job_list *list, size_t index);

// Where the next list begins; NULL if this one is the last. Lives as long as the list.
//
// Thread-safe.
const char *rc_job_list_next(const rc_job_list *list);

// The list as JSON: {"jobs": [{"job_id", "title"}], "next": a cursor or null}; NULL for NULL. Lives as long as the list.
//
// Thread-safe.
const char *rc_job_list_json(const rc_job_list *list);

// Frees a list. NULL is allowed.
//
// Thread-safe, while nobody uses the list.
void rc_job_list_free(rc_job_list *list);

// Results of jobs
// ---------------
//
// An rc_artifact is one file of a job. Its bytes never change. It can be saved to a file, or read from any place.

// What can be fetched of a job.
typedef enum rc_artifact_kind {
    // The scene as .ply.
    RC_ARTIFACT_PLY = 1,
    // The scene as .spz.
    RC_ARTIFACT_SPZ = 2,
    // A picture of the scene, JPEG.
    RC_ARTIFACT_PREVIEW = 3,
    // Every figure of the reconstruction, JSON.
    RC_ARTIFACT_REPORT = 4,
    // What the worker wrote, text. The only one that a failed job may have.
    RC_ARTIFACT_LOG = 5,
    // The camera poses as COLMAP has them, zip.
    RC_ARTIFACT_CAMERAS = 6,
    // Masks of the object in the undistorted frames, if the background was removed, zip.
    RC_ARTIFACT_MASKS = 7,
    // A film around the scene, MP4, if the service makes it.
    RC_ARTIFACT_TURNTABLE = 8,
    // The scene as .sog, if the service makes it.
    RC_ARTIFACT_SOG = 9,
    // The scene as glTF, .glb, if the service makes it.
    RC_ARTIFACT_GLB = 10,
    // A large scene with few splats, as .spz: what a viewer shows until it has the whole.
    RC_ARTIFACT_FIRST_LOOK = 11,
    // A picture of the camera poses, JPEG.
    RC_ARTIFACT_POSES = 12,
} rc_artifact_kind;

// Opens a file of a job and stores it in *artifact; free it with rc_artifact_free(). It can be read to its end even if
// the job is deleted meanwhile.
//
// Fails with RC_NOT_FOUND if the job does not have it (yet).
//
// Thread-safe.
rc_code rc_job_artifact(const rc_job *job, rc_artifact_kind kind, rc_artifact **artifact, rc_error **error);

// Writes a file of a job to `file`: whole or not at all, in place of what was there.
//
// Fails with RC_NOT_FOUND if the job does not have it (yet), RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_job_download(const rc_job *job, rc_artifact_kind kind, const char *file, rc_error **error);

// Writes the artifact to `file`: whole or not at all, in place of what was there.
//
// Fails with RC_NOT_FOUND if the job was deleted meanwhile, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_artifact_save(const rc_artifact *artifact, const char *file, rc_error **error);

// Reads up to `capacity` bytes from the byte `offset` on into `buffer` and stores in *count how many there were: fewer
// only at the end, 0 beyond it. `buffer` may hold anything after a failure.
//
// Fails with RC_IO.
//
// Thread-safe.
rc_code rc_artifact_read(const rc_artifact *artifact,
                         uint64_t offset,
                         void *buffer,
                         size_t capacity,
                         size_t *count,
                         rc_error **error);

// Size in bytes; 0 for NULL.
//
// Thread-safe.
uint64_t rc_artifact_size(const rc_artifact *artifact);

// A name for the user's disk: the title of the job with an extension. Text of the user's; NULL for NULL. Lives as long
// as the artifact.
//
// Thread-safe.
const char *rc_artifact_file_name(const rc_artifact *artifact);

// Strong entity tag, with quotes, for HTTP; NULL for NULL. Lives as long as the artifact.
//
// Thread-safe.
const char *rc_artifact_etag(const rc_artifact *artifact);

// Media type, for example "image/jpeg"; NULL for NULL. Lives as long as the artifact.
//
// Thread-safe.
const char *rc_artifact_content_type(const rc_artifact *artifact);

// Frees an artifact. NULL is allowed.
//
// Thread-safe, while nobody uses the artifact.
void rc_artifact_free(rc_artifact *artifact);

// Workers
// -------
//
// A worker takes the first job of the queue, whoever's it is, makes its scene, and takes the next. It lives on threads of
// its own (rc_engine_start_workers()) or on the caller's (rc_engine_run_worker()); a worker in another program on the
// same folder does as well. A job whose worker dies is taken by another one within half a minute and goes on where its
// last checkpoint was.

// What a worker is. Start from RC_WORKER_OPTIONS_INIT.
typedef struct rc_worker_options {
    // sizeof(rc_worker_options)
    size_t struct_size;
    // Name for people, in logs; NULL = "worker".
    const char *name;
    // Threads that it computes with; 0 = as many as there are processors.
    uint32_t threads;
    // How much it yields to other programs, 0 (not) to 19 (to everybody), as `nice` counts; RC_WORKER_OPTIONS_INIT has 10.
    uint32_t niceness;
} rc_worker_options;

#define RC_WORKER_OPTIONS_INIT { sizeof(rc_worker_options), NULL, 0, 10 }

// Starts `count` more workers (1 to 256), each on threads of its own. They stop when the engine is freed, or with
// rc_engine_stop_workers().
//
// options: NULL = the defaults.
//
// Thread-safe.
rc_code rc_engine_start_workers(const rc_engine *engine,
                                uint32_t count,
                                const rc_worker_options *options,
                                rc_error **error);

// Stops the workers that were started on this engine: each writes a checkpoint of its job and puts it back into the
// queue. Does nothing if there are none.
//
// timeout_seconds: how long to wait for them; negative = until all have ended.
//
// Fails with RC_DEADLINE_EXCEEDED if one has not ended in time; nobody waits for it any more, its job is taken by
// another worker.
//
// Thread-safe. Blocks.
rc_code rc_engine_stop_workers(const rc_engine *engine, double timeout_seconds, rc_error **error);

// Works on jobs on this thread until `cancel` is raised; then the job at hand goes back to the queue. What goes wrong
// with a job is written to the job.
//
// options: NULL = the defaults.
//
// Fails if the worker cannot be set up.
//
// Thread-safe. Blocks.
rc_code rc_engine_run_worker(const rc_engine *engine,
                             const rc_worker_options *options,
                             const rc_cancel *cancel,
                             rc_error **error);

// Does what is to be done from time to time (jobs of dead workers, deletions, files that nobody needs) and stores in
// *json what that was; free it with rc_string_free(). A program that holds an engine for long calls this every minute.
//
// Thread-safe.
rc_code rc_engine_maintain(const rc_engine *engine, char **json, rc_error **error);

// Stores in *json counts of the whole folder, for its operator: users, jobs by state, bytes. Free it with
// rc_string_free().
//
// Thread-safe.
rc_code rc_engine_statistics_json(const rc_engine *engine, char **json, rc_error **error);

// Progress
// --------
//
// A long call tells how far it is through a function of the caller's, to which it hands back the pointer `user`. The
// function is called on the thread that made the long call, never on another and never after that call has returned;
// so `user` needs no lock. It should be quick, must not throw or jump out, and may call any function of this library.
// What it is given lives until it returns. By returning a number other than 0 it cancels the call.

// What an event tells.
typedef enum rc_event_kind {
    // How far a stage is: step, stage_fraction, total_fraction, remaining_seconds, message.
    RC_EVENT_PROGRESS = 1,
    // Something did not stop the work but should be known: code, message.
    RC_EVENT_WARNING = 2,
    // A picture of the scene as it is now, every few seconds of training: preview.
    RC_EVENT_PREVIEW = 3,
} rc_event_kind;

// A picture: 8 bits a channel, sRGB, row by row from the top without gaps.
typedef struct rc_picture {
    // Width in pixels; 0 = no picture.
    uint32_t width;
    // Height in pixels.
    uint32_t height;
    // 4 * width * height bytes: red, green, blue, alpha (255).
    const uint8_t *rgba;
} rc_picture;

// One thing that a running call tells. A field that its kind does not name is 0 or NULL, but for
// total_fraction and remaining_seconds, which are -1.
typedef struct rc_event {
    // What it tells.
    rc_event_kind kind;
    // The stage.
    rc_stage stage;
    // The part of the stage, for people, for example "matching".
    const char *step;
    // Stable name of a warning, for example "low_parallax".
    const char *code;
    // A sentence for people; may be NULL.
    const char *message;
    // How much of the stage is done, 0 to 1.
    float stage_fraction;
    // How much of the whole is done, 0 to 1; negative = not known.
    float total_fraction;
    // Estimated seconds until the stage is done; negative = not known yet.
    double remaining_seconds;
    // The picture.
    rc_picture preview;
} rc_event;

// A function that is told of events. Returns 0 to go on, another number to cancel the call.
typedef int (*rc_event_fn)(void *user, const rc_event *event);

// Cancelling from elsewhere
// -------------------------
//
// A long call can be cancelled by its own callback, or through an rc_cancel that is given to it and raised by another
// thread or a signal handler. The call then returns RC_CANCELLED within a few seconds. A callback cancels its own call
// only: an rc_cancel that was given beside it is not raised.

// A flag that is not raised; free it with rc_cancel_free().
//
// Thread-safe.
rc_cancel *rc_cancel_new(void);

// Asks all calls that were given this flag to stop. Does nothing for NULL.
//
// Thread-safe, and may be called in a signal handler.
void rc_cancel_raise(const rc_cancel *cancel);

// Whether the flag was raised; false for NULL.
//
// Thread-safe.
bool rc_cancel_is_raised(const rc_cancel *cancel);

// Frees a flag. NULL is allowed, and so are calls that still run with it: they keep what they need.
//
// Thread-safe, while nobody uses the flag.
void rc_cancel_free(rc_cancel *cancel);

// A video to files, without jobs
// ------------------------------
//
// One call that makes a scene of a video in a folder of the caller's. If it is cancelled, or the program is killed, the
// same call continues where it was.

// A set of options that go together.
typedef enum rc_quality {
    // RC_QUALITY_STANDARD.
    RC_QUALITY_DEFAULT = 0,
    // A small scene in a few minutes without a graphics processor.
    RC_QUALITY_PREVIEW = 1,
    // Made for a graphics processor.
    RC_QUALITY_STANDARD = 2,
    // More frames, pixels, Gaussians and steps.
    RC_QUALITY_HIGH = 3,
} rc_quality;

// How the pictures of a video show directions.
typedef enum rc_projection {
    // As the file says, or as its pictures look where it says nothing.
    RC_PROJECTION_AUTO = 0,
    // As an ordinary lens does.
    RC_PROJECTION_FLAT = 1,
    // All directions around the camera (360° video).
    RC_PROJECTION_EQUIRECTANGULAR = 2,
} rc_projection;

// What to make of a video, and how. Start from RC_RECONSTRUCTION_INIT. A number that is 0 is that of the quality.
typedef struct rc_reconstruction {
    // sizeof(rc_reconstruction)
    size_t struct_size;
    // What the other fields change.
    rc_quality quality;
    // How camera poses are found.
    rc_method reconstruction_method;
    // How a viewer moves.
    rc_camera_type camera_type;
    // Largest number of Gaussians, 1000 to 10,000,000.
    uint32_t training_max_num_gaussians;
    // Number of training steps, 1 to 200,000.
    uint32_t training_num_steps;
    // At most this many key frames; 0 = as many as the quality has, or up to three times as many where neighbouring ones would share too
    // little.
    uint32_t max_frames;
    // Long side of the frames in pixels at most.
    uint32_t max_resolution;
    // Long side of the training pictures in pixels at most.
    uint32_t training_max_resolution;
    // Degree of the spherical harmonics, 0 to 3; negative = that of the quality, which RC_RECONSTRUCTION_INIT has.
    int sh_degree;
    // Hold out every n-th picture and score the scene on them; 0 = train on all.
    uint32_t test_every;
    // Threads to compute with; 0 = as many as there are processors. The scene does not depend on it.
    uint32_t threads;
    // Fixes every random choice.
    uint64_t seed;
    // Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    // 1000: the scene is then in metres. 0 = there are none.
    double apriltag_size_mm;
    // Whether to remove the background.
    bool remove_background;
    // Whether to leave out turntable.mp4.
    bool no_turntable;
    // Title for the report; NULL = the name of the file.
    const char *title;
    // Where training runs: "auto", "cpu", "gpu" or part of the name of a graphics adapter; NULL = "auto".
    const char *device;
    // Whether to fail where the tags give no scale; else the scene is in arbitrary units then, and report.json says why. Needs
    // apriltag_size_mm.
    bool require_scale;
    // The file of the mask model for remove_background; NULL = the one that is installed.
    const char *mask_model;
    // A folder with a mask (PNG, white where the object is) named like every picture, in place of the mask model; NULL =
    // there is none.
    const char *mask_dir;
    // Whether to fail where the poses are doubtful; else the scene is made all the same, and report.json says why.
    bool strict;
    // Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 = a global shutter. Negative =
    // that of a video is estimated where it matters, which RC_RECONSTRUCTION_INIT has.
    double rolling_shutter_ms;
    // Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number.
    // Removes the background, too; for where something else catches the eye more. NULL = it is found without.
    const char *object_at;
    // A disc of the ground to keep under the object, so many times as wide as the object (at most 20). Removes the rest of the
    // background, too. 0 = none.
    double keep_floor;
    // Seconds within which all of it is to end: training makes fewer steps with fewer Gaussians on smaller pictures if this
    // machine would take longer. 0 = all that was asked for.
    uint32_t time_budget_seconds;
    // How the pictures of the video show directions.
    rc_projection projection;
    // Whether to leave Gaussians that hang in free space where they are; on a graphics device they are left in any case.
    bool no_clean;
    // Focal length in pixels of the frames (those of the camera that made most), if known; it is refined. 0 = it is not.
    double focal;
} rc_reconstruction;

#define RC_RECONSTRUCTION_INIT \
  { sizeof(rc_reconstruction), RC_QUALITY_DEFAULT, RC_METHOD_DEFAULT, RC_CAMERA_DEFAULT, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0.0, \
    false, false, NULL, NULL, false, NULL, NULL, false, -1.0, NULL, 0.0, 0, RC_PROJECTION_AUTO, false, 0.0 }

// Makes a scene of a video (or of a folder of pictures, videos or both) in `folder`: scene.ply, scene.spz, preview.jpg, camera.json,
// turntable.mp4, report.json, and the key frames and camera poses it was made from. All of it is on the disk when this
// returns. Stages that an earlier call has finished are not done again.
//
// options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel. report_json:
// gets the content of report.json, to be freed with rc_string_free(); NULL = it is not wanted.
//
// Fails with RC_INVALID_ARGUMENT for options out of range and for a folder in which frames/, sparse/ or undistorted/ has
// something in it that no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video, RC_CANCELLED,
// RC_DISK_FULL, and with one of RC_TOO_FEW_FRAMES to RC_UNRELIABLE_RECONSTRUCTION for a scene that cannot be reconstructed. The
// error names its stage.
//
// Thread-safe, for folders that are not the same. Blocks.
rc_code rc_reconstruct(const char *input,
                       const char *folder,
                       const rc_reconstruction *options,
                       rc_event_fn on_event,
                       void *user,
                       const rc_cancel *cancel,
                       char **report_json,
                       rc_error **error);

// Sparse models
// -------------
//
// A sparse model is what structure from motion finds: cameras (lenses), images with their poses, and points. An rc_model
// holds it in arrays, which can be looked at in place. World and camera axes are COLMAP's: x right, y down, z forward. A
// model never changes.

// The arrays of a sparse model. Start from RC_MODEL_ARRAYS_INIT. Everything is in the order of its ids.
typedef struct rc_model_arrays {
    // sizeof(rc_model_arrays)
    size_t struct_size;
    // Number of cameras.
    size_t camera_count;
    // camera_count: their ids.
    const uint32_t *camera_ids;
    // camera_count: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, SIMPLE_RADIAL_FISHEYE, RADIAL_FISHEYE or
    // OPENCV_FISHEYE.
    const char *const *camera_models;
    // 2 * camera_count: width and height in pixels.
    const uint32_t *camera_sizes;
    // 8 * camera_count: COLMAP's parameters of the model in their order, lengths in pixels, then zeros.
    const double *camera_params;
    // Number of images.
    size_t image_count;
    // image_count: their ids.
    const uint32_t *image_ids;
    // image_count: names of their files.
    const char *const *image_names;
    // image_count: the id of the camera of each.
    const uint32_t *image_camera_ids;
    // 12 * image_count: world to camera, `[R | t]`, three rows of four.
    const double *image_poses;
    // Number of points.
    size_t point_count;
    // 3 * point_count: where they are in the world.
    const double *points;
    // 3 * point_count: red, green, blue.
    const uint8_t *colors;
    // point_count: mean reprojection error, pixels.
    const double *errors;
    // point_count: in how many images each is seen.
    const uint32_t *track_lengths;
} rc_model_arrays;

#define RC_MODEL_ARRAYS_INIT \
  { sizeof(rc_model_arrays), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, \
    NULL }

// Reads a folder of COLMAP's files (cameras, images, points3D; binary or text), stores the model in *model; free it with
// rc_model_free().
//
// Fails with RC_NOT_FOUND, RC_INVALID_FILE if one is damaged, RC_IO.
//
// Thread-safe.
rc_code rc_model_load(const char *folder,
                      rc_model **model,
                      rc_error **error);

// Writes COLMAP's files of a model into a folder, binary (bit-exact) or as text.
//
// Fails with RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_model_save(const rc_model *model, const char *folder, bool as_text, rc_error **error);

// Number of images with a pose; 0 for NULL.
//
// Thread-safe.
size_t rc_model_count(const rc_model *model);

// Fills *arrays with the model's. The pointers are those of the model, live as long as it, and are only read. They are
// NULL where the number is 0.
//
// Thread-safe.
rc_code rc_model_show(const rc_model *model, rc_model_arrays *arrays, rc_error **error);

// How the model was found, as JSON: its verdict, figures and warnings; NULL if rc_sfm() did not make it. Belongs to the
// model.
//
// Thread-safe.
const char *rc_model_report(const rc_model *model);

// In how many more models the capture fell apart: places that share nothing with this one. 0 for NULL.
//
// Thread-safe.
size_t rc_model_component_count(const rc_model *model);

// Stores the model of another place, number 0 to rc_model_component_count() - 1, in *component; free it with
// rc_model_free(). It lives on without this one.
//
// Fails with RC_NOT_FOUND if there is none of that number.
//
// Thread-safe.
rc_code rc_model_component(const rc_model *model, size_t number, rc_model **component, rc_error **error);

// Writes a picture of cameras and points, from above and from the side, as JPEG of 1800 x 900 pixels. Cameras go from blue to
// orange in the order of their names; those of a model of rc_sfm() from green (sure) over yellow to red (as far off as a good
// pose may be).
//
// Fails with RC_INVALID_ARGUMENT for a model without images, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_model_plot(const rc_model *model,
                      const char *file,
                      rc_error **error);

// Writes the pictures of the folder `images` without lens distortion to folder/images and their model, whose cameras are
// PINHOLE, to folder/sparse.
//
// undistorted: gets that model as well, to be freed with rc_model_free(); NULL = it is not wanted. threads: 0 = as many as
// there are processors. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel.
//
// Fails with RC_INVALID_ARGUMENT if `images` is, or is in, one of these two folders, RC_NOT_FOUND for a picture that is not there,
// RC_INVALID_MEDIA for one that is damaged or not of its camera's size, RC_INTRINSICS_UNRELIABLE for a lens that folds so much of
// the picture over itself that it cannot be undistorted, RC_CANCELLED, RC_DISK_FULL, RC_IO.
//
// Thread-safe, for folders that are not the same. Blocks.
rc_code rc_model_undistort(const rc_model *model,
                           const char *images,
                           const char *folder,
                           uint32_t threads,
                           rc_event_fn on_event,
                           void *user,
                           const rc_cancel *cancel,
                           rc_model **undistorted,
                           rc_error **error);

// Frees a model, and with it the arrays that rc_model_show() showed. NULL is allowed.
//
// Thread-safe, while nobody uses the model.
void rc_model_free(rc_model *model);

// Camera poses, without a scene
// -----------------------------
//
// The stages before the training, one by one: key frames of a video, and structure from motion. rc_sfm() takes a video as
// well and chooses frames itself; rc_reconstruct() does all of it.

// What to take from a video. Start from RC_FRAME_OPTIONS_INIT. A number that is 0 is the usual one.
typedef struct rc_frame_options {
    // sizeof(rc_frame_options)
    size_t struct_size;
    // At most this many key frames, 3 to 5000; usually 150, or up to 450 where neighbouring ones would share too little. Of a 360° video a third as many panoramas, six pictures each.
    uint32_t max_frames;
    // Long side of the frames in pixels at most, 64 to 8192; usually 1600.
    uint32_t max_resolution;
    // Threads to compute with; 0 = as many as there are processors.
    uint32_t threads;
    // How the pictures show directions.
    rc_projection projection;
} rc_frame_options;

#define RC_FRAME_OPTIONS_INIT { sizeof(rc_frame_options), 0, 0, 0, RC_PROJECTION_AUTO }

// How to find camera poses. Start from RC_SFM_OPTIONS_INIT. A number that is 0 is the usual one.
typedef struct rc_sfm_options {
    // sizeof(rc_sfm_options)
    size_t struct_size;
    // Which mapper begins.
    rc_method reconstruction_method;
    // Where frames have yet to be chosen: at most this many, 3 to 5000; usually 150, or up to 450 where neighbouring ones would share
    // too little.
    uint32_t max_frames;
    // Where frames have yet to be made: their long side in pixels at most, 64 to 8192; usually 1600.
    uint32_t max_resolution;
    // Threads to compute with; 0 = as many as there are processors. The model does not depend on it.
    uint32_t threads;
    // Fixes every random choice.
    uint64_t seed;
    // Focal length in pixels of the frames (those of the camera that made most), if known; it is refined. 0 = it is not.
    double focal;
    // Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    // 1000: the model is then in metres. 0 = there are none.
    double apriltag_size_mm;
    // Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 = a global shutter. Negative =
    // that of a video is estimated where it matters, which RC_SFM_OPTIONS_INIT has.
    double rolling_shutter_ms;
    // Whether to fail where the tags give no scale. Needs apriltag_size_mm.
    bool require_scale;
    // Whether to fail where the poses are doubtful.
    bool strict;
    // Whether to hand over a model that is broken, too, rather than to fail: for who wants to look at it.
    bool keep_broken;
    // Whether to make masks of the object, in undistorted/masks. Needs a folder.
    bool remove_background;
    // The file of the mask model for remove_background; NULL = the one that is installed.
    const char *mask_model;
    // A folder with a mask (PNG, white where the object is) named like every picture, in place of the mask model; NULL =
    // there is none.
    const char *mask_dir;
    // Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number. Makes
    // masks, too; for where something else catches the eye more. NULL = it is found without.
    const char *object_at;
    // A disc of the ground to keep under the object in its masks, so many times as wide as the object (at most 20). Makes masks,
    // too. 0 = none.
    double keep_floor;
    // Where frames have yet to be chosen: how the pictures of the video show directions.
    rc_projection projection;
    // The lens that all frames share, by COLMAP's name: "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV",
    // "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE" or "OPENCV_FISHEYE". NULL = "SIMPLE_RADIAL", which becomes "RADIAL", or a
    // fisheye, where the capture asks for it.
    const char *camera_model;
    // The folder of an earlier result, with its frames/ and sparse/: the input, a further video or folder of pictures of the same
    // scene, is added to that model, whose world stays as it is. NULL = there is none.
    const char *add_to;
} rc_sfm_options;

#define RC_SFM_OPTIONS_INIT \
  { sizeof(rc_sfm_options), RC_METHOD_DEFAULT, 0, 0, 0, 0, 0.0, 0.0, -1.0, false, false, false, false, NULL, \
    NULL, NULL, 0.0, RC_PROJECTION_AUTO, NULL, NULL }

// Chooses sharp key frames of a video, at equal motion rather than equal time, and writes them into `folder`, with a contact
// sheet, frames.jpg. `input` may be a folder of pictures, videos or both, too, by one camera or several.
//
// options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel. frames_json: gets
// what is known of the frames (the content of frames.json), to be freed with rc_string_free(); NULL = it is not wanted.
//
// Fails with RC_INVALID_ARGUMENT for options out of range and for a folder with pictures that are called as frames are and that
// no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video, RC_TOO_FEW_FRAMES, RC_CANCELLED,
// RC_DISK_FULL, RC_IO.
//
// Thread-safe, for folders that are not the same. Blocks.
rc_code rc_extract_frames(const char *input,
                          const char *folder,
                          const rc_frame_options *options,
                          rc_event_fn on_event,
                          void *user,
                          const rc_cancel *cancel,
                          char **frames_json,
                          rc_error **error);

// Finds where the camera was: poses, lens and points, which are stored in *model; free it with rc_model_free(). `input` is a
// folder that rc_extract_frames() has filled, a video, or a folder of pictures, videos or both.
//
// folder: gets COLMAP's files of the model (sparse/), the undistorted pictures and theirs (undistorted/), and poses.jpg;
// NULL = the model is wanted in memory only. options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL =
// only on_event can cancel.
//
// Fails with RC_INVALID_ARGUMENT for options out of range, masks without a folder, and a folder in which sparse/, undistorted/
// or frames/ has something in it that no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video,
// RC_CANCELLED, RC_DISK_FULL, and with one of RC_TOO_FEW_FRAMES to RC_UNRELIABLE_RECONSTRUCTION for poses that cannot be found.
//
// Thread-safe, for folders that are not the same. Blocks.
rc_code rc_sfm(const char *input,
               const char *folder,
               const rc_sfm_options *options,
               rc_event_fn on_event,
               void *user,
               const rc_cancel *cancel,
               rc_model **model,
               rc_error **error);

// Scenes
// ------
//
// A scene is a set of Gaussians. An rc_scene holds it in arrays, which can be looked at in place. Its frame is that of
// scene.ply: x right, y down, z forward; .spz and .glb files, whose frames are others, are converted. A scene never changes.

// The arrays of a scene. Start from RC_SPLATS_INIT. A splat is `opacity * exp(-1/2 (x - mean)' S^-1 (x - mean))` with
// `S = R diag(scale^2) R'`; values are stored as in the .ply files of 3D Gaussian Splatting.
typedef struct rc_splats {
    // sizeof(rc_splats)
    size_t struct_size;
    // Number of splats.
    size_t count;
    // Degree of the spherical harmonics, 0 to 3.
    uint32_t sh_degree;
    // Coefficients per colour of that degree: 1, 4, 9 or 16.
    uint32_t sh_coefficients;
    // Whether the scene was trained with, and is to be rendered with, the anti-aliasing filter.
    bool antialiased;
    // 3 * count: centres, world units.
    const float *means;
    // 3 * count: natural logarithms of the standard deviations along the axes, world units.
    const float *log_scales;
    // 4 * count: quaternions w, x, y, z, splat to world; not necessarily of unit length.
    const float *rotations;
    // count: logits of the opacities.
    const float *opacities;
    // 3 * sh_coefficients * count: splat by splat, coefficient by coefficient, red green blue. The colour from a
    // direction d is 0.5 + sum of coefficient * basis(d).
    const float *sh;
} rc_splats;

#define RC_SPLATS_INIT { sizeof(rc_splats), 0, 0, 0, false, NULL, NULL, NULL, NULL, NULL }

// Reads a scene from a .ply file (plain or packed), an .spz, a .glb or a .sog file and stores it in *scene; free
// it with rc_scene_free(). The content decides, not the name.
//
// Fails with RC_NOT_FOUND, RC_INVALID_FILE if it is none of these or damaged, RC_IO.
//
// Thread-safe.
rc_code rc_scene_load(const char *file, rc_scene **scene, rc_error **error);

// Writes a scene as .ply, .spz, .glb or .sog, as the name says: whole or not at all, in place of what was there. An
// .spz file is smaller and rounds the values; a .sog file is still smaller, and its splats are in another order.
//
// Fails with RC_INVALID_ARGUMENT for another name, RC_DISK_FULL, RC_IO.
//
// Thread-safe.
rc_code rc_scene_save(const rc_scene *scene, const char *file, rc_error **error);

// Makes a scene of the caller's arrays, which are copied, and stores it in *scene; free it with rc_scene_free().
// sh_coefficients may be 0: it follows from sh_degree.
//
// Fails with RC_INVALID_ARGUMENT for a degree above 3 or numbers of coefficients that contradict it.
//
// Thread-safe.
rc_code rc_scene_new(const rc_splats *splats, rc_scene **scene, rc_error **error);

// Number of splats; 0 for NULL.
//
// Thread-safe.
size_t rc_scene_count(const rc_scene *scene);

// Fills *splats with the scene's arrays. Nothing is copied: the pointers are those of the scene, live as long as it, and
// are only read. They are NULL if there are no splats.
//
// Thread-safe.
rc_code rc_scene_splats(const rc_scene *scene,
                        rc_splats *splats,
                        rc_error **error);

// Frees a scene, and with it the arrays that rc_scene_splats() showed. NULL is allowed, and so are renderers that were
// opened on it: they have what they need.
//
// Thread-safe, while nobody uses the scene.
void rc_scene_free(rc_scene *scene);

// Pictures of scenes
// ------------------
//
// A renderer shows a scene through any camera, as a picture in memory.

// A pinhole camera: where it is and the picture it takes. Start from RC_VIEW_INIT; rc_view_look_at() fills it.
typedef struct rc_view {
    // sizeof(rc_view)
    size_t struct_size;
    // World to camera, row by row: x_camera = rotation * x_world + translation; the camera's x is right, y down, z
    // forward.
    double rotation[9];
    // World to camera, world units.
    double translation[3];
    // Focal length in pixels along x.
    double fx;
    // Focal length in pixels along y.
    double fy;
    // Principal point in pixels; the centre of the top left pixel is (0.5, 0.5).
    double cx;
    // Principal point in pixels.
    double cy;
    // Width of the picture in pixels, 1 to 16384.
    uint32_t width;
    // Height of the picture in pixels, 1 to 16384.
    uint32_t height;
    // Red, green, blue of what is behind the scene, 0 to 1.
    float background[3];
} rc_view;

#define RC_VIEW_INIT \
  { sizeof(rc_view), { 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0 }, { 0.0, 0.0, 0.0 }, 0.0, 0.0, 0.0, 0.0, \
    0, 0, { 0.0f, 0.0f, 0.0f } }

// Opens a renderer on a scene, which is copied to its device, and stores it in *renderer; free it with
// rc_renderer_free().
//
// device: "auto", "cpu", "gpu" or part of the name of a graphics adapter; NULL = "auto".
//
// Fails with RC_NO_GPU if there is no such device, RC_GPU.
//
// Thread-safe.
rc_code rc_renderer_open(const rc_scene *scene, const char *device, rc_renderer **renderer, rc_error **error);

// What the renderer runs on, for people, for example "cpu (AVX2, f32)"; NULL for NULL. Lives as long as the renderer.
//
// Thread-safe.
const char *rc_renderer_device(const rc_renderer *renderer);

// Makes *view, whose other fields stay, a camera at `position` that looks at `target`, with `up` upwards in the picture
// as far as can be; all in world coordinates, three numbers each. The vertical field of view is in degrees.
//
// Fails with RC_INVALID_ARGUMENT if the three do not define a direction, or width, height or field of view is out of
// range.
//
// Thread-safe.
rc_code rc_view_look_at(rc_view *view,
                        const double *position,
                        const double *target,
                        const double *up,
                        double field_of_view,
                        uint32_t width,
                        uint32_t height,
                        rc_error **error);

// Renders a picture into `rgba`: 4 * width * height bytes, row by row from the top, red, green, blue over the background,
// and alpha: how much of the pixel the scene covers. `size` says how many bytes there are; more than needed are left
// alone.
//
// Fails with RC_INVALID_ARGUMENT for a view that cannot be or a buffer that is too small, RC_GPU.
//
// Thread-safe; pictures of one renderer are made one after the other.
rc_code rc_renderer_render(const rc_renderer *renderer,
                           const rc_view *view,
                           uint8_t *rgba,
                           size_t size,
                           rc_error **error);

// Frees a renderer. NULL is allowed.
//
// Thread-safe, while nobody uses the renderer.
void rc_renderer_free(rc_renderer *renderer);

// Writes a picture (4 * width * height bytes, as rc_renderer_render() makes it) to a PNG file. If it fails, a file that was there
// stays.
//
// Fails with RC_INVALID_ARGUMENT for a size out of range or fewer bytes than it needs, RC_IO, RC_DISK_FULL.
//
// Thread-safe.
rc_code rc_write_png(const char *file,
                     const uint8_t *rgba,
                     size_t size,
                     uint32_t width,
                     uint32_t height,
                     rc_error **error);

// What is said where there is no caller to tell
// ---------------------------------------------
//
// Workers and maintenance have nobody to return an error to: what goes wrong there is logged.

// How much a line of the log matters.
typedef enum rc_log_level {
    // Nothing is logged.
    RC_LOG_OFF = 0,
    // Something failed.
    RC_LOG_ERROR = 1,
    // Something may be wrong.
    RC_LOG_WARN = 2,
    // What an operator may want to know.
    RC_LOG_INFO = 3,
    // What a developer may want to know.
    RC_LOG_DEBUG = 4,
} rc_log_level;

// A function that takes a line of the log. It is called from any thread, from several at once, must not throw, and must
// not call this library. `level` is an rc_log_level.
typedef void (*rc_log_fn)(void *user, int level, const char *message);

// Sends what the library logs, up to `level`, to a function of the caller's; NULL = to nobody, as at the start. It is one
// for the whole program. When this returns, the function that was there before is not running and will not be called.
//
// Fails with RC_CONFLICT if the program is one of Rust and has a logger of its own.
//
// Thread-safe.
rc_code rc_set_log(rc_log_level level,
                   rc_log_fn function,
                   void *user,
                   rc_error **error);

#ifdef __cplusplus
} // extern "C"
#endif

#endif // RECONSTRUCT_H
