// libreconstruct for C++17
// ------------------------
//
// A wrapper, in this header alone, of reconstruct.h, whose front chapter holds here too:
//
//     #include <reconstruct.hpp>
//
//     reconstruct::Engine engine("scenes", {"local", 1});
//     reconstruct::Job job = engine.submit("garden.mp4");
//     job.wait([](const reconstruct::JobInfo& info) {
//         std::cout << 100 * info.stage_fraction << " %\n";
//         return true; // go on
//     });
//     job.download(RC_ARTIFACT_PLY, "garden.ply");
//
// Objects own what they stand for, can be moved and not copied, and free it when they go. One that was moved from can
// only be destroyed or assigned to; to use it throws Error with RC_NULL_ARGUMENT. What fails throws Error. A function
// that is called back may throw: the call is cancelled, and the exception comes out of it. Const member functions may be
// called by several threads at once.

#ifndef RECONSTRUCT_HPP
#define RECONSTRUCT_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reconstruct.h"

namespace reconstruct {

// Why a call, or a job, failed. what() is for people.
class Error : public std::runtime_error {
  public:
    // Takes what `error` says; `error` stays the caller's.
    Error(rc_code code, const rc_error* error)
        : std::runtime_error(sentence(code, error)), code_(code), slug_(rc_error_slug(error)),
          message_(rc_error_message(error)), hint_(rc_error_hint(error) ? rc_error_hint(error) : ""),
          debug_(rc_error_debug(error)), stage_(rc_error_stage(error)), retryable_(rc_error_is_retryable(error)) {}

    rc_code code() const noexcept { return code_; }
    // Stable name of the kind, for example "insufficient_parallax".
    const std::string& slug() const noexcept { return slug_; }
    // What was wrong, with which value.
    const std::string& message() const noexcept { return message_; }
    // What can be done about it; may be empty.
    const std::string& hint() const noexcept { return hint_; }
    // Everything in one line, with the causes.
    const std::string& debug() const noexcept { return debug_; }
    // The stage in which it happened, or RC_STAGE_NONE.
    rc_stage stage() const noexcept { return stage_; }
    // Whether the same call may succeed later.
    bool is_retryable() const noexcept { return retryable_; }

  private:
    static std::string sentence(rc_code code, const rc_error* error) {
        if (error == nullptr) return rc_code_name(code);
        const char* hint = rc_error_hint(error);
        std::string text = rc_error_message(error);
        return hint ? text + " (" + hint + ")" : text;
    }

    rc_code code_;
    std::string slug_, message_, hint_, debug_;
    rc_stage stage_;
    bool retryable_;
};

namespace detail {

template <typename T, void (*Free)(T*)> struct Deleter {
    void operator()(T* pointer) const noexcept { Free(pointer); }
};
template <typename T, void (*Free)(T*)> using Handle = std::unique_ptr<T, Deleter<T, Free>>;

using ErrorHandle = Handle<rc_error, rc_error_free>;

// Calls a function of the C interface with all but its last argument. Throws what a function that was called back has
// thrown meanwhile, else what the call reports.
template <typename... Parameters, typename... Arguments>
void call_back(const std::exception_ptr& thrown, rc_code (*function)(Parameters...), Arguments&&... arguments) {
    rc_error* error = nullptr;
    const rc_code code = function(std::forward<Arguments>(arguments)..., &error);
    const ErrorHandle owner(error);
    if (thrown) std::rethrow_exception(thrown);
    if (code != RC_OK) throw Error(code, error);
}

// The same for a function that calls nothing back.
template <typename... Parameters, typename... Arguments>
void call(rc_code (*function)(Parameters...), Arguments&&... arguments) {
    call_back(nullptr, function, std::forward<Arguments>(arguments)...);
}

// What a function of the C interface stores by its last argument but one, which is left out, too.
template <typename T, typename... Parameters, typename... Arguments>
T made(rc_code (*function)(Parameters...), Arguments&&... arguments) {
    T out{};
    call(function, std::forward<Arguments>(arguments)..., &out);
    return out;
}

// Text that the library has made.
struct Text {
    char* data = nullptr;
    Text() = default;
    Text(const Text&) = delete;
    ~Text() { rc_string_free(data); }
};

// The same for text.
template <typename... Parameters, typename... Arguments>
std::string text(rc_code (*function)(Parameters...), Arguments&&... arguments) {
    Text out;
    call(function, std::forward<Arguments>(arguments)..., &out.data);
    return out.data;
}

// What a call makes that calls something back: there may be both, a result and an exception that was thrown meanwhile.
template <typename T, void (*Free)(T*)> struct Made {
    T* data = nullptr;
    Made() = default;
    Made(const Made&) = delete;
    ~Made() {
        if (data != nullptr) Free(data);
    }
    T* take() noexcept { return std::exchange(data, nullptr); }
};

// An object that owns what it stands for.
template <typename T, void (*Free)(T*)> class Owner {
  public:
    explicit Owner(T* owned) noexcept : handle_(owned) {}
    const T* get() const noexcept { return handle_.get(); }

  private:
    Handle<T, Free> handle_;
};

// A function of the caller's that a running call tells things, and what it threw.
template <typename T> struct Listener {
    const std::function<bool(const T&)>& function;
    std::exception_ptr thrown;

    static int tell(void* user, const T* what) noexcept {
        Listener& self = *static_cast<Listener*>(user);
        try {
            return self.function(*what) ? 0 : 1;
        } catch (...) {
            self.thrown = std::current_exception();
            return 1;
        }
    }
};

inline const char* c_str(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }
inline std::string or_empty(const char* text) { return text ? text : ""; }

} // namespace detail

// Values that somebody else owns, one after the other; std::span takes it.
template <typename T> class Span {
  public:
    constexpr Span() noexcept = default;
    constexpr Span(const T* data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr const T* data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const T* begin() const noexcept { return data_; }
    constexpr const T* end() const noexcept { return data_ + size_; }
    constexpr const T& operator[](std::size_t index) const noexcept { return data_[index]; }

  private:
    const T* data_ = nullptr;
    std::size_t size_ = 0;
};

// Throws unless the library that is loaded has the binary interface of this header. Engines and reconstructions do it.
inline void check_abi() {
    if (rc_abi_version() != RC_ABI_VERSION) {
        throw std::runtime_error("the library libreconstruct " + std::string(rc_version()) + " has the ABI version " +
                                 std::to_string(rc_abi_version()) + "; this program was built for " +
                                 std::to_string(RC_ABI_VERSION));
    }
}

// The version of the library that is loaded.
inline std::string version() { return rc_version(); }

// A flag that stops long calls, from any thread or a signal handler. Once raised it stays so.
class CancelToken : public detail::Owner<rc_cancel, rc_cancel_free> {
  public:
    CancelToken() : Owner(rc_cancel_new()) {}
    void raise() const noexcept { rc_cancel_raise(get()); }
    bool is_raised() const noexcept { return rc_cancel_is_raised(get()); }
};

// A file of a job. Its bytes never change.
class Artifact : public detail::Owner<rc_artifact, rc_artifact_free> {
  public:
    using Owner::Owner;
    std::uint64_t size() const noexcept { return rc_artifact_size(get()); }
    // A name for the user's disk: the title of the job with an extension.
    std::string file_name() const { return detail::or_empty(rc_artifact_file_name(get())); }
    std::string etag() const { return detail::or_empty(rc_artifact_etag(get())); }
    std::string content_type() const { return detail::or_empty(rc_artifact_content_type(get())); }
    // Writes it to a file, whole or not at all.
    void save(const std::string& file) const { detail::call(rc_artifact_save, get(), file.c_str()); }
    // Reads up to `capacity` bytes from `offset` on; how many there were.
    std::size_t read(std::uint64_t offset, void* buffer, std::size_t capacity) const {
        return detail::made<std::size_t>(rc_artifact_read, get(), offset, buffer, capacity);
    }
    // All of it.
    std::vector<std::uint8_t> bytes() const {
        std::vector<std::uint8_t> all(static_cast<std::size_t>(size()));
        all.resize(read(0, all.data(), all.size()));
        return all;
    }
};

using JobInfo = rc_job_info;
using Camera = rc_camera;

// Changes to a job; what is absent stays.
struct JobChanges {
    std::optional<std::string> title;
    std::optional<bool> is_public;
    std::optional<Camera> camera;
    // Back to the camera that the reconstruction found.
    bool reset_camera = false;
};

// A job of an engine's user: a name for it, which is never out of date.
class Job : public detail::Owner<rc_job, rc_job_free> {
  public:
    // Is told how the job comes along; returns whether to go on waiting.
    using OnChange = std::function<bool(const JobInfo&)>;

    using Owner::Owner;

    std::string id() const { return detail::or_empty(rc_job_id(get())); }
    // What is true now.
    JobInfo info() const {
        JobInfo info = RC_JOB_INFO_INIT;
        detail::call(rc_job_get_info, get(), &info);
        return info;
    }
    std::string title() const { return detail::text(rc_job_title, get()); }
    // As the REST interface shows it.
    std::string json() const { return detail::text(rc_job_json, get()); }
    std::string details_json() const { return detail::text(rc_job_details_json, get()); }
    std::string log() const { return detail::text(rc_job_log, get()); }
    // Why it has failed, if it has.
    std::optional<Error> failure() const {
        const detail::ErrorHandle failure(detail::made<rc_error*>(rc_job_failure, get()));
        if (!failure) return std::nullopt;
        return Error(rc_error_code(failure.get()), failure.get());
    }

    // Waits until the job has finished or failed; what it is then. Throws RC_DEADLINE_EXCEEDED after so many seconds,
    // if they are not negative, and RC_CANCELLED if `on_change` returns false (the job goes on).
    JobInfo wait(const OnChange& on_change = {}, double timeout_seconds = -1.0) const {
        detail::Listener<JobInfo> listener{on_change, nullptr};
        const auto tell = on_change ? &listener.tell : nullptr;
        detail::call_back(listener.thrown, rc_job_wait, get(), timeout_seconds, tell, &listener);
        return info();
    }

    void update(const JobChanges& changes) const {
        rc_job_changes c = RC_JOB_CHANGES_INIT;
        c.title = detail::c_str(changes.title);
        if (changes.is_public) c.is_public = *changes.is_public ? RC_YES : RC_NO;
        c.reset_camera = changes.reset_camera;
        c.camera = changes.camera ? &*changes.camera : nullptr;
        detail::call(rc_job_update, get(), &c);
    }
    // Stops it for good.
    void cancel() const { detail::call(rc_job_cancel, get()); }
    // What is told of it beyond its fields, as JSON: progress, failure, warnings, and once it is finished how good it is.
    std::string report_json() const { return detail::text(rc_job_report_json, get()); }
    // A new job of the same video, once this one has ended. changes_json: what is to be other than before.
    Job restart(const std::string& changes_json = "{}") const {
        return Job(detail::made<rc_job*>(rc_job_restart_json, get(), changes_json.c_str()));
    }
    // Deletes it with all its files, irreversibly.
    void remove() const { detail::call(rc_job_delete, get()); }

    Artifact artifact(rc_artifact_kind kind) const {
        return Artifact(detail::made<rc_artifact*>(rc_job_artifact, get(), kind));
    }
    void download(rc_artifact_kind kind, const std::string& file) const {
        detail::call(rc_job_download, get(), kind, file.c_str());
    }
};

// What a job is asked for; what is 0 or absent is the default of reconstruct.h.
struct Request {
    std::optional<std::string> title;
    bool is_public = false;
    bool remove_background = false;
    rc_method reconstruction_method = RC_METHOD_DEFAULT;
    rc_camera_type camera_type = RC_CAMERA_DEFAULT;
    std::uint32_t training_max_num_gaussians = 0;
    std::uint32_t training_num_steps = 0;
    double apriltag_size_mm = 0.0;
    // Makes a submission of the same video safe to repeat: see rc_request, and Engine::submit().
    std::optional<std::string> idempotency_key;
};

// Which jobs to list; the default is all, newest first.
struct ListQuery {
    std::int64_t limit = -1;
    std::optional<std::string> cursor;
    std::optional<std::string> status;
    std::optional<bool> is_public;
};

struct JobSummary {
    std::string id;
    std::string title;
};

struct JobPage {
    std::vector<JobSummary> jobs;
    // Where the next page begins, if there is one.
    std::optional<std::string> next;
};

// A video that is sent piece by piece. Destroyed before finish(), it leaves nothing.
class Upload : public detail::Owner<rc_upload, rc_upload_free> {
  public:
    using Owner::Owner;
    void append(const void* data, std::size_t size) { detail::call(rc_upload_append, get(), data, size); }
    // Ends it; the name of the video.
    std::string finish() { return detail::text(rc_upload_finish, get()); }
};

struct EngineOptions {
    // The user to act for, added if there is none.
    std::string user = "local";
    // Workers to start in this program, at most 256.
    std::uint32_t workers = 0;
    rc_tier tier = RC_TIER_DEFAULT;
    // Settings of the service, a JSON object.
    std::optional<std::string> settings_json = std::nullopt;
    // Where the rows and the files are if many machines share them: "postgres://..." and "file:///mnt/scenes", both or none.
    // The folder is then this machine's own.
    std::optional<std::string> database = std::nullopt;
    std::optional<std::string> storage = std::nullopt;
    // File with what makes keys genuine, the same on all machines; absent: secrets.json in the folder.
    std::optional<std::string> secrets = std::nullopt;
};

struct WorkerOptions {
    std::string name = "worker";
    std::uint32_t threads = 0;
    std::uint32_t niceness = 10;
};

// The service on a folder, for one user. Destroying it stops the workers that it started.
class Engine : public detail::Owner<rc_engine, rc_engine_free> {
  public:
    using Owner::Owner;
    explicit Engine(const std::string& folder, const EngineOptions& options = {}) : Owner(open(folder, options)) {}

    std::string folder() const { return detail::or_empty(rc_engine_folder(get())); }

    // An engine for another user, as the operator makes it.
    Engine for_user(const std::string& name, rc_tier tier = RC_TIER_DEFAULT) const {
        return Engine(detail::made<rc_engine*>(rc_engine_for_user, get(), name.c_str(), tier));
    }
    // An engine for the owner of an API key, which is looked at in this call alone: call this again for each request.
    Engine for_key(const std::string& api_key) const {
        return Engine(detail::made<rc_engine*>(rc_engine_for_key, get(), api_key.c_str()));
    }
    void set_tier(const std::string& user, rc_tier tier) const {
        detail::call(rc_engine_set_tier, get(), user.c_str(), tier);
    }
    std::string users_json() const { return detail::text(rc_engine_users_json, get()); }

    // Makes an API key, which is shown now and never again.
    std::string create_key(const std::string& name) const {
        return detail::text(rc_engine_create_key, get(), name.c_str());
    }
    std::string keys_json() const { return detail::text(rc_engine_keys_json, get()); }
    void revoke_key(const std::string& prefix) const { detail::call(rc_engine_revoke_key, get(), prefix.c_str()); }

    // Copies a video into the folder; its name there.
    std::string import_video(const std::string& file) const {
        return detail::text(rc_engine_import_video, get(), file.c_str());
    }
    // Removes a video that no job uses and that is not wanted any more.
    void discard_upload(const std::string& blob_name) const {
        detail::call(rc_engine_discard_upload, get(), blob_name.c_str());
    }
    Upload begin_upload(const std::string& file_name) const {
        return Upload(detail::made<rc_upload*>(rc_engine_begin_upload, get(), file_name.c_str()));
    }

    // Copies a video file into the folder and submits a job for it. Each call copies it anew and makes another job, so that an
    // idempotency key would promise what cannot be kept: with one this throws std::invalid_argument. Then call import_video()
    // once and submit_video() as often as is needed.
    Job submit(const std::string& file, const Request& request = {}) const {
        if (request.idempotency_key)
            throw std::invalid_argument("an idempotency key needs a video that is in the folder: import_video(), then submit_video()");
        const std::string blob_name = import_video(file);
        try {
            return submit_video(blob_name, request);
        } catch (...) {
            // The next try copies it anew. What counts is why this one failed.
            rc_engine_discard_upload(get(), blob_name.c_str(), nullptr);
            throw;
        }
    }
    // Submits a job for a video that is in the folder.
    Job submit_video(const std::string& blob_name, const Request& request = {}) const {
        rc_request r = RC_REQUEST_INIT;
        r.title = detail::c_str(request.title);
        r.is_public = request.is_public;
        r.remove_background = request.remove_background;
        r.reconstruction_method = request.reconstruction_method;
        r.camera_type = request.camera_type;
        r.training_max_num_gaussians = request.training_max_num_gaussians;
        r.training_num_steps = request.training_num_steps;
        r.apriltag_size_mm = request.apriltag_size_mm;
        r.idempotency_key = detail::c_str(request.idempotency_key);
        return Job(detail::made<rc_job*>(rc_engine_submit, get(), blob_name.c_str(), &r));
    }
    Job job(const std::string& id) const { return Job(detail::made<rc_job*>(rc_engine_job, get(), id.c_str())); }
    JobPage jobs(const ListQuery& query = {}) const {
        rc_list_query q = RC_LIST_QUERY_INIT;
        q.limit = query.limit;
        q.cursor = detail::c_str(query.cursor);
        q.status = detail::c_str(query.status);
        if (query.is_public) q.is_public = *query.is_public ? RC_YES : RC_NO;
        rc_job_list* list = detail::made<rc_job_list*>(rc_engine_jobs, get(), &q);
        const detail::Handle<rc_job_list, rc_job_list_free> owner(list);
        JobPage page;
        page.jobs.reserve(rc_job_list_count(list));
        for (std::size_t i = 0; i < rc_job_list_count(list); ++i)
            page.jobs.push_back({rc_job_list_id(list, i), rc_job_list_title(list, i)});
        if (const char* next = rc_job_list_next(list)) page.next = next;
        return page;
    }

    void start_workers(std::uint32_t count, const WorkerOptions& options = {}) const {
        const rc_worker_options o = c_options(options);
        detail::call(rc_engine_start_workers, get(), count, &o);
    }
    // Throws RC_DEADLINE_EXCEEDED if one has not ended in time.
    void stop_workers(double timeout_seconds = -1.0) const {
        detail::call(rc_engine_stop_workers, get(), timeout_seconds);
    }
    // Works on jobs on this thread until `cancel` is raised.
    void run_worker(const CancelToken& cancel, const WorkerOptions& options = {}) const {
        const rc_worker_options o = c_options(options);
        detail::call(rc_engine_run_worker, get(), &o, cancel.get());
    }
    // To be called every minute by a program that holds an engine for long; what was done, as JSON.
    std::string maintain() const { return detail::text(rc_engine_maintain, get()); }
    std::string statistics_json() const { return detail::text(rc_engine_statistics_json, get()); }

  private:
    static rc_engine* open(const std::string& folder, const EngineOptions& options) {
        check_abi();
        rc_engine_options o = RC_ENGINE_OPTIONS_INIT;
        o.user = options.user.c_str();
        o.tier = options.tier;
        o.workers = options.workers;
        o.settings_json = detail::c_str(options.settings_json);
        o.database = detail::c_str(options.database);
        o.storage = detail::c_str(options.storage);
        o.secrets = detail::c_str(options.secrets);
        return detail::made<rc_engine*>(rc_engine_open, folder.c_str(), &o);
    }
    static rc_worker_options c_options(const WorkerOptions& options) {
        rc_worker_options o = RC_WORKER_OPTIONS_INIT;
        o.name = options.name.c_str();
        o.threads = options.threads;
        o.niceness = options.niceness;
        return o;
    }
};

// One thing that a running call tells; what it points to lives until the function that was told returns.
using Event = rc_event;
// Is told of events; returns whether to go on.
using OnEvent = std::function<bool(const Event&)>;

// What to make of a video; what is 0 or absent is that of the quality.
struct Reconstruction {
    rc_quality quality = RC_QUALITY_DEFAULT;
    rc_method reconstruction_method = RC_METHOD_DEFAULT;
    rc_camera_type camera_type = RC_CAMERA_DEFAULT;
    std::uint32_t training_max_num_gaussians = 0;
    std::uint32_t training_num_steps = 0;
    std::uint32_t max_frames = 0;
    std::uint32_t max_resolution = 0;
    std::uint32_t training_max_resolution = 0;
    std::optional<int> sh_degree;
    std::uint32_t test_every = 0;
    std::uint32_t threads = 0;
    std::uint64_t seed = 0;
    double apriltag_size_mm = 0.0;
    // Whether to fail where the tags give no scale.
    bool require_scale = false;
    // Milliseconds from the first line of a picture to the last one; 0 is a global shutter. Without a value that of a video is
    // estimated where it matters.
    std::optional<double> rolling_shutter_ms;
    bool remove_background = false;
    bool turntable = true;
    std::optional<std::string> title;
    // "auto", "cpu", "gpu" or part of the name of a graphics adapter.
    std::string device = "auto";
    // The file of the mask model; the installed one if there is no value.
    std::optional<std::string> mask_model;
    // A folder with a mask for every picture, in place of the mask model.
    std::optional<std::string> mask_dir;
    // Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number.
    std::optional<std::string> object_at;
    // A disc of the ground to keep under the object, so many times as wide as the object (at most 20). 0: none.
    double keep_floor = 0.0;
    // Whether to fail where the poses are doubtful.
    bool strict = false;
    // Seconds within which all of it is to end: training does less if this machine would take longer. 0: all that was asked for.
    std::uint32_t time_budget_seconds = 0;
    // How the pictures of the video show directions.
    rc_projection projection = RC_PROJECTION_AUTO;
    // Whether Gaussians that hang in free space are moved to where they are needed; on a graphics device they are left.
    bool clean = true;
    // Focal length in pixels of the frames (those of the camera that made most), if known; it is refined. 0: it is not.
    double focal = 0.0;
};

// Makes a scene of a video in `folder`; the content of its report.json. `on_event` is told on this thread; if it returns
// false, or `cancel` is raised, this throws RC_CANCELLED. The same call continues what was cancelled or killed.
inline std::string run(const std::string& input, const std::string& folder, const Reconstruction& options = {},
                       const OnEvent& on_event = {}, const CancelToken* cancel = nullptr) {
    check_abi();
    rc_reconstruction r = RC_RECONSTRUCTION_INIT;
    r.quality = options.quality;
    r.reconstruction_method = options.reconstruction_method;
    r.camera_type = options.camera_type;
    r.training_max_num_gaussians = options.training_max_num_gaussians;
    r.training_num_steps = options.training_num_steps;
    r.max_frames = options.max_frames;
    r.max_resolution = options.max_resolution;
    r.training_max_resolution = options.training_max_resolution;
    r.sh_degree = options.sh_degree.value_or(-1);
    r.test_every = options.test_every;
    r.threads = options.threads;
    r.seed = options.seed;
    r.apriltag_size_mm = options.apriltag_size_mm;
    r.require_scale = options.require_scale;
    r.rolling_shutter_ms = options.rolling_shutter_ms.value_or(-1.0);
    r.remove_background = options.remove_background;
    r.no_turntable = !options.turntable;
    r.title = detail::c_str(options.title);
    r.device = options.device.c_str();
    r.mask_model = detail::c_str(options.mask_model);
    r.mask_dir = detail::c_str(options.mask_dir);
    r.object_at = detail::c_str(options.object_at);
    r.keep_floor = options.keep_floor;
    r.strict = options.strict;
    r.time_budget_seconds = options.time_budget_seconds;
    r.projection = options.projection;
    r.no_clean = !options.clean;
    r.focal = options.focal;
    detail::Listener<Event> listener{on_event, nullptr};
    const auto tell = on_event ? &listener.tell : nullptr;
    detail::Text report;
    detail::call_back(listener.thrown, rc_reconstruct, input.c_str(), folder.c_str(), &r, tell, &listener,
                      cancel ? cancel->get() : nullptr, &report.data);
    return report.data;
}

// What to take from a video; what is 0 is the usual number.
struct FrameOptions {
    std::uint32_t max_frames = 0;
    std::uint32_t max_resolution = 0;
    std::uint32_t threads = 0;
    // How the pictures show directions.
    rc_projection projection = RC_PROJECTION_AUTO;
};

// Chooses key frames of a video, or of a folder of pictures, videos or both, into `folder`; what is known of them, as JSON. Events as for run().
inline std::string extract_frames(const std::string& input, const std::string& folder, const FrameOptions& options = {},
                                  const OnEvent& on_event = {}, const CancelToken* cancel = nullptr) {
    check_abi();
    rc_frame_options o = RC_FRAME_OPTIONS_INIT;
    o.max_frames = options.max_frames;
    o.max_resolution = options.max_resolution;
    o.threads = options.threads;
    o.projection = options.projection;
    detail::Listener<Event> listener{on_event, nullptr};
    detail::Text frames;
    detail::call_back(listener.thrown, rc_extract_frames, input.c_str(), folder.c_str(), &o,
                      on_event ? &listener.tell : nullptr, &listener, cancel ? cancel->get() : nullptr, &frames.data);
    return frames.data;
}

// Cameras, images with poses, and points. Never changes.
class Model : public detail::Owner<rc_model, rc_model_free> {
  public:
    using Owner::Owner;
    // From a folder of COLMAP's files.
    static Model load(const std::string& folder) { return Model(detail::made<rc_model*>(rc_model_load, folder.c_str())); }
    // As COLMAP's files, binary or as text.
    void save(const std::string& folder, bool as_text = false) const {
        detail::call(rc_model_save, get(), folder.c_str(), as_text);
    }

    // Number of images.
    std::size_t size() const noexcept { return rc_model_count(get()); }
    // The arrays in place, see rc_model_arrays; they live as long as the model.
    rc_model_arrays arrays() const {
        rc_model_arrays arrays = RC_MODEL_ARRAYS_INIT;
        detail::call(rc_model_show, get(), &arrays);
        return arrays;
    }
    // How it was found, as JSON; empty if sfm() did not make it.
    std::string report_json() const { return detail::or_empty(rc_model_report(get())); }
    // Models of other places that the capture shows.
    std::vector<Model> components() const {
        std::vector<Model> models;
        for (std::size_t k = 0; k < rc_model_component_count(get()); ++k)
            models.push_back(Model(detail::made<rc_model*>(rc_model_component, get(), k)));
        return models;
    }
    // A picture of cameras and points, JPEG.
    void plot(const std::string& file) const { detail::call(rc_model_plot, get(), file.c_str()); }
    // Writes the pictures of `images` without lens distortion, and their model, which is returned, into `folder`, whose own
    // images/ and sparse/ are no input.
    Model undistort(const std::string& images, const std::string& folder, std::uint32_t threads = 0,
                    const OnEvent& on_event = {}, const CancelToken* cancel = nullptr) const {
        detail::Listener<Event> listener{on_event, nullptr};
        detail::Made<rc_model, rc_model_free> made;
        detail::call_back(listener.thrown, rc_model_undistort, get(), images.c_str(), folder.c_str(), threads,
                          on_event ? &listener.tell : nullptr, &listener, cancel ? cancel->get() : nullptr, &made.data);
        return Model(made.take());
    }
};

// How to find camera poses, see rc_sfm_options; what is 0 or absent is the usual value.
struct SfmOptions {
    rc_method reconstruction_method = RC_METHOD_DEFAULT;
    std::uint32_t max_frames = 0;
    std::uint32_t max_resolution = 0;
    std::uint32_t threads = 0;
    std::uint64_t seed = 0;
    double focal = 0.0;
    double apriltag_size_mm = 0.0;
    std::optional<double> rolling_shutter_ms;
    bool require_scale = false;
    bool strict = false;
    bool keep_broken = false;
    bool remove_background = false;
    std::optional<std::string> mask_model;
    std::optional<std::string> mask_dir;
    // Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number.
    std::optional<std::string> object_at;
    // A disc of the ground to keep under the object, so many times as wide as the object (at most 20). 0: none.
    double keep_floor = 0.0;
    // Where frames have yet to be chosen: how the pictures of the video show directions.
    rc_projection projection = RC_PROJECTION_AUTO;
    // The lens that all frames share, by COLMAP's name.
    std::optional<std::string> camera_model;
    // The folder of an earlier result: the input is added to its model, whose world stays as it is.
    std::optional<std::string> add_to;
};

// Finds where the camera was, of frames in a folder, of pictures or of a video. With a `folder` all that comes out is there as
// well. Events as for run().
inline Model sfm(const std::string& input, const std::optional<std::string>& folder = {}, const SfmOptions& options = {},
                 const OnEvent& on_event = {}, const CancelToken* cancel = nullptr) {
    check_abi();
    rc_sfm_options o = RC_SFM_OPTIONS_INIT;
    o.reconstruction_method = options.reconstruction_method;
    o.max_frames = options.max_frames;
    o.max_resolution = options.max_resolution;
    o.threads = options.threads;
    o.seed = options.seed;
    o.focal = options.focal;
    o.apriltag_size_mm = options.apriltag_size_mm;
    o.rolling_shutter_ms = options.rolling_shutter_ms.value_or(-1.0);
    o.require_scale = options.require_scale;
    o.strict = options.strict;
    o.keep_broken = options.keep_broken;
    o.remove_background = options.remove_background;
    o.mask_model = detail::c_str(options.mask_model);
    o.mask_dir = detail::c_str(options.mask_dir);
    o.object_at = detail::c_str(options.object_at);
    o.keep_floor = options.keep_floor;
    o.projection = options.projection;
    o.camera_model = detail::c_str(options.camera_model);
    o.add_to = detail::c_str(options.add_to);
    detail::Listener<Event> listener{on_event, nullptr};
    detail::Made<rc_model, rc_model_free> made;
    detail::call_back(listener.thrown, rc_sfm, input.c_str(), detail::c_str(folder), &o, on_event ? &listener.tell : nullptr,
                      &listener, cancel ? cancel->get() : nullptr, &made.data);
    return Model(made.take());
}

// A Gaussian scene. Never changes.
class Scene : public detail::Owner<rc_scene, rc_scene_free> {
  public:
    using Owner::Owner;
    // From a .ply, .spz, .glb or .sog file.
    static Scene load(const std::string& file) { return Scene(detail::made<rc_scene*>(rc_scene_load, file.c_str())); }
    // From arrays, which are copied.
    static Scene from(const rc_splats& splats) { return Scene(detail::made<rc_scene*>(rc_scene_new, &splats)); }
    // As .ply, .spz, .glb or .sog, as the name says.
    void save(const std::string& file) const { detail::call(rc_scene_save, get(), file.c_str()); }

    std::size_t size() const noexcept { return rc_scene_count(get()); }
    // The arrays in place, see rc_splats.
    rc_splats splats() const {
        rc_splats splats = RC_SPLATS_INIT;
        detail::call(rc_scene_splats, get(), &splats);
        return splats;
    }
    // The same as spans, which live as long as the scene: three numbers per splat, ...
    Span<float> means() const { return {splats().means, 3 * size()}; }
    Span<float> log_scales() const { return {splats().log_scales, 3 * size()}; }
    // ... four (w, x, y, z) ...
    Span<float> rotations() const { return {splats().rotations, 4 * size()}; }
    // ... one ...
    Span<float> opacities() const { return {splats().opacities, size()}; }
    // ... and three times the number of coefficients.
    Span<float> sh() const {
        const rc_splats s = splats();
        return {s.sh, 3 * s.sh_coefficients * s.count};
    }
};

// A pinhole camera, see rc_view.
struct View : rc_view {
    View() : rc_view(RC_VIEW_INIT) {}
    using Vector = double[3];
    // At `position`, looking at `target`, with `up` upwards; the vertical field of view in degrees.
    static View look_at(const Vector& position, const Vector& target, const Vector& up, double field_of_view,
                        std::uint32_t width, std::uint32_t height) {
        View view;
        detail::call(rc_view_look_at, &view, position, target, up, field_of_view, width, height);
        return view;
    }
};

// 8 bits a channel: red, green, blue, alpha, row by row from the top.
struct Picture {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::vector<std::uint8_t> rgba;

    void write_png(const std::string& file) const {
        detail::call(rc_write_png, file.c_str(), rgba.data(), rgba.size(), width, height);
    }
};

// A scene on a device, ready to be shown.
class Renderer : public detail::Owner<rc_renderer, rc_renderer_free> {
  public:
    explicit Renderer(const Scene& scene, const std::string& device = "auto")
        : Owner(detail::made<rc_renderer*>(rc_renderer_open, scene.get(), device.c_str())) {}
    std::string device() const { return detail::or_empty(rc_renderer_device(get())); }
    Picture render(const rc_view& view) const {
        Picture picture;
        picture.width = view.width;
        picture.height = view.height;
        // A size out of range is refused before anything is written.
        const std::uint64_t pixels = std::uint64_t{view.width} * view.height;
        picture.rgba.resize(pixels <= (std::uint64_t{1} << 28) ? static_cast<std::size_t>(4 * pixels) : 0);
        render(view, picture.rgba.data(), picture.rgba.size());
        return picture;
    }
    // Into memory of the caller's, 4 * width * height bytes.
    void render(const rc_view& view, std::uint8_t* rgba, std::size_t size) const {
        // An empty vector may have no data; what is wrong then is the size.
        std::uint8_t none = 0;
        detail::call(rc_renderer_render, get(), &view, rgba || size != 0 ? rgba : &none, size);
    }
};

} // namespace reconstruct

#endif // RECONSTRUCT_HPP
